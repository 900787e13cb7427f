// What several pages draw: states, lists, the four pictures of something that is asked for, and dialogs.

/** @import {News} from "./place.js" */
/** @import {State} from "./answers.js" */
/** @import {TemplateResult} from "./vendor/lit-html/lit-html.js" */
/** @typedef {unknown} Drawn whatever a template can hold */
import { Problem } from "./api.js";
import { age, time } from "./show.js";
import { html, nothing, render, svg } from "./vendor/lit-html/lit-html.js";

const STALE_MS = 15_000;

/**
 * What is asked for: coming, failed, not permitted, or there. What is there stays when a later request fails, with a word about it.
 * @template T
 * @param {News<T>} news
 * @param {(value: T) => Drawn} draw
 */
export function shown(news, draw) {
  if (news.value !== undefined) return html`${news.problem && staleness(news)}${draw(news.value)}`;
  if (news.problem) return problem(news.problem);
  return html`<p class="coming" role="status">Loading …</p>`;
}

/** @param {News<unknown>} news */
function staleness(news) {
  if (!news.problem || Date.now() - news.at < STALE_MS) return nothing;
  return html`<p class="stale" role="status">No news since ${time(new Date(news.at))}: ${news.problem.message}</p>`;
}

/** @param {Problem} found */
export function problem(found) {
  const heading = found.status === 403 ? "Not permitted" : "That did not work";
  return html`<div class="problem" role="alert">
    <strong>${heading}</strong>
    <p>${found.message}</p>
    ${found.fix && html`<p class="fix">What to do: ${found.fix}</p>`}
  </div>`;
}

/**
 * A list that has nothing in it, and why that is so.
 * @param {string} text
 * @param {Drawn} [more]
 */
export const empty = (text, more = nothing) =>
  html`<div class="empty">
    <p>${text}</p>
    ${more}
  </div>`;

/** @param {State} state */
export const badge = (state) =>
  html`<span class="state ${state.name}" title="since ${time(state.since)}">${state.name}</span>`;

/**
 * A moment, as how long ago it was.
 * @param {string | null} at
 */
export const ago = (at) => html`<time datetime=${at ?? ""} title=${time(at)}>${age(at)}</time>`;

/**
 * A table that scrolls sideways by itself where the screen is narrow.
 * @param {string} label what it shows, for those who do not see it
 * @param {(string | [string, "number"])[]} columns
 * @param {unknown} rows
 */
export const table = (label, columns, rows) =>
  html`<div class="scroll" role="region" aria-label=${label} tabindex="0">
    <table>
      <thead>
        <tr>
          ${columns.map((column) => (Array.isArray(column) ? html`<th scope="col" class="number">${column[0]}</th>` : html`<th scope="col">${column}</th>`))}
        </tr>
      </thead>
      <tbody>
        ${rows}
      </tbody>
    </table>
  </div>`;

/**
 * Values over time as a line, newest at the right.
 * @param {(number | null)[]} values
 * @param {{width?: number, height?: number, label?: string}} [options]
 */
export function sparkline(values, { width = 90, height = 22, label = "" } = {}) {
  const most = Math.max(1e-9, ...values.map((value) => value ?? 0));
  const step = width / Math.max(1, values.length - 1);
  const point = (/** @type {number} */ value, /** @type {number} */ index) =>
    `${(index * step).toFixed(1)},${(height - 2 - (value / most) * (height - 4)).toFixed(1)}`;
  const points = values.flatMap((value, index) => (value === null ? [] : [point(value, index)]));
  const hidden = label ? "false" : "true";
  return html`<svg
    class="spark"
    viewBox="0 0 ${width} ${height}"
    width=${width}
    height=${height}
    role="img"
    aria-hidden=${hidden}
    aria-label=${label}
  >
    ${points.length > 1 ? svg`<polyline points=${points.join(" ")} />` : nothing}
  </svg>`;
}

/**
 * Tabs that are links: each has an address.
 * @param {string} label
 * @param {{name: string, text: string, href: string}[]} tabs
 * @param {string} current
 */
export const tabs = (label, tabs, current) =>
  html`<nav class="tabs" aria-label=${label}>
    ${tabs.map((tab) => html`<a href=${tab.href} aria-current=${tab.name === current ? "page" : "false"}>${tab.text}</a>`)}
  </nav>`;

/**
 * A field with its label and what is wrong with it.
 * @param {string} label
 * @param {TemplateResult} control
 * @param {Drawn} [hint]
 */
export const field = (label, control, hint = nothing) =>
  html`<label class="field"
    ><span>${label}</span>${control}${hint === nothing ? nothing : html`<small>${hint}</small>`}</label
  >`;

/**
 * Says something for some seconds, to screen readers too.
 * @param {string} text
 * @param {"done" | "failed"} [kind]
 */
export function notify(text, kind = "done") {
  const notices = /** @type {HTMLElement} */ (document.getElementById("notices"));
  const notice = document.createElement("p");
  notice.className = kind;
  notice.textContent = text;
  notices.append(notice);
  setTimeout(() => notice.remove(), kind === "failed" ? 15_000 : 6_000);
}

/**
 * Does something that a person asked for, and tells what came of it.
 * @template T
 * @param {() => Promise<T>} work
 * @param {string} done what to say when it went well
 * @returns {Promise<T | undefined>}
 */
export async function doing(work, done) {
  try {
    const answer = await work();
    if (done) notify(done);
    return answer;
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    notify([error.message, error.fix].filter(Boolean).join(". What to do: "), "failed");
    return undefined;
  }
}

/**
 * @typedef {object} Question
 * @property {string} title
 * @property {Drawn} text
 * @property {string} yes what the button says
 * @property {boolean} [isDangerous]
 * @property {string} [call] the request that does it, for those who would rather write it into a script
 */

/**
 * Asks in a dialog; what its form holds when it was answered with yes, null otherwise.
 * @param {Question} question
 * @returns {Promise<FormData | null>}
 */
export function asked(question) {
  const dialog = document.createElement("dialog");
  document.body.append(dialog);
  const form = () => /** @type {HTMLFormElement} */ (dialog.querySelector("form"));
  render(
    html`<form method="dialog" aria-labelledby="dialog-title">
      <h2 id="dialog-title">${question.title}</h2>
      <div class="text">${question.text}</div>
      ${question.call ? html`<p class="call">The same by the API: <code>${question.call}</code></p>` : nothing}
      <div class="buttons">
        <button type="submit" value="no" formnovalidate>Cancel</button>
        <button type="submit" value="yes" class=${question.isDangerous ? "danger" : "primary"}>${question.yes}</button>
      </div>
    </form>`,
    dialog,
  );
  dialog.showModal();
  return new Promise((over) => {
    dialog.addEventListener("close", () => {
      const answer = dialog.returnValue === "yes" ? new FormData(form()) : null;
      dialog.remove();
      over(answer);
    });
  });
}
