// The REST API, asked as every client asks it. What changes something carries the session's CSRF token.

/** @import {FieldProblem} from "./answers.js" */

/** Why a request was not done, in the API's own words. */
export class Problem extends Error {
  /**
   * @param {number} status 0 when there was no answer
   * @param {string} message
   * @param {string} fix
   * @param {FieldProblem[]} [fields]
   */
  constructor(status, message, fix, fields = []) {
    super(message);
    this.status = status;
    this.fix = fix;
    this.fields = fields;
  }
}

const PATIENCE_MS = 120_000;
let csrf = "";

/** @param {string | null} token of GET /me */
export function useCsrf(token) {
  csrf = token ?? "";
}

/**
 * @template T
 * @param {string} path below /api/v1
 * @returns {Promise<T>}
 */
export const get = (path) => ask("GET", path);

/**
 * @template T
 * @param {"GET" | "POST" | "PUT" | "PATCH" | "DELETE"} method
 * @param {string} path below /api/v1
 * @param {unknown} [body]
 * @returns {Promise<T>}
 */
export async function ask(method, path, body) {
  /** @type {Record<string, string>} */
  const headers = {};
  if (method !== "GET") headers["x-csrf-token"] = csrf;
  if (body !== undefined) headers["content-type"] = "application/json";
  const answer = await answered(`/api/v1${path}`, {
    method,
    headers,
    signal: AbortSignal.timeout(PATIENCE_MS),
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  });
  if (!answer.ok) throw await problemOf(answer);
  return answer.status === 204 ? /** @type {T} */ (undefined) : answer.json();
}

/**
 * @param {string} path
 * @param {RequestInit} request
 */
async function answered(path, request) {
  try {
    return await fetch(path, request);
  } catch {
    throw new Problem(
      0,
      "the server does not answer",
      "look whether `headrace serve` runs; this page asks again by itself",
    );
  }
}

/** @param {Response} answer */
async function problemOf(answer) {
  const body = await answer.json().catch(() => ({}));
  const message = body.error ?? `the server answered ${answer.status}`;
  return new Problem(answer.status, message, body.fix ?? "", body.fields ?? []);
}
