// One pipeline: its state and what can be done about it, and a tab for each thing that it has. The tab stands in the address.

/** @import {Pipeline} from "../answers.js" */
/** @import {Page, Place} from "../place.js" */
/** @typedef {(place: Place, name: string) => () => import("../parts.js").Drawn} Tab */
import { get } from "../api.js";
import { ago, badge, problem, shown, tabs } from "../parts.js";
import { html, nothing } from "../vendor/lit-html/lit-html.js";
import { actions } from "./pipeline/actions.js";
import { errors } from "./pipeline/errors.js";
import { events } from "./pipeline/events.js";
import { file } from "./pipeline/file.js";
import { loads } from "./pipeline/loads.js";
import { log } from "./pipeline/log.js";
import { offsets } from "./pipeline/offsets.js";
import { now } from "./pipeline/now.js";
import { tables } from "./pipeline/tables.js";
import { verify } from "./pipeline/verify.js";
import { watermarks } from "./pipeline/watermarks.js";
import { windows } from "./pipeline/windows.js";

const EVERY_S = 2;

/** @type {{name: string, text: string, tab: Tab, role?: "operator"}[]} */
const TABS = [
  { name: "", text: "Now", tab: now },
  { name: "offsets", text: "Offsets", tab: offsets },
  { name: "events", text: "Events and runs", tab: events },
  { name: "tables", text: "Tables", tab: tables },
  { name: "loads", text: "Full loads", tab: loads },
  { name: "errors", text: "Rows set aside", tab: errors },
  { name: "windows", text: "Windows", tab: windows },
  { name: "verify", text: "Verification", tab: verify },
  { name: "watermarks", text: "Watermarks", tab: watermarks },
  { name: "log", text: "Process log", tab: log, role: "operator" },
  { name: "file", text: "Flow file", tab: file },
];

/** @type {Page} */
export const pipeline = (place) => {
  const [name = "", wanted = ""] = place.parts;
  const { tab, text } = TABS.find((one) => one.name === wanted) ?? { tab: missing, text: "Not found" };
  place.title = `${name} · ${text}`;
  const news = place.news(
    EVERY_S,
    () => /** @type {Promise<Pipeline>} */ (get(`/pipelines/${encodeURIComponent(name)}`)),
  );
  const draw = tab(place, name);
  return () => {
    if (news.value === undefined && news.problem?.status === 404) return html`${head(name)}${problem(news.problem)}`;
    return html`${head(
      name,
      news.value &&
        html`${badge(news.value.state)}
          <small>since ${ago(news.value.state.since)}</small> ${actions(place, news.value)}`,
    )}
    ${shown(news, (found) => about(found))}
    ${tabs(
      `Of ${name}`,
      TABS.filter(({ role }) => !role || place.may(role)).map((one) => ({ ...one, href: address(name, one.name) })),
      wanted,
    )}
    ${draw()}`;
  };
};

/**
 * @param {string} name
 * @param {string} tab
 */
const address = (name, tab) => `/ui/pipelines/${encodeURIComponent(name)}${tab && `/${tab}`}`;

/**
 * @param {string} name
 * @param {unknown} [more]
 */
const head = (name, more = nothing) =>
  html`<div class="head">
    <h1><a class="crumb" href="/ui/">Pipelines</a> <span class="crumb" aria-hidden="true">/</span> ${name}</h1>
    ${more}
  </div>`;

/** @type {Tab} */
const missing = () => () => html`<p>There is no such tab.</p>`;

/**
 * What its state says, and that a newer flow file waits for a restart.
 * @param {Pipeline} found
 */
function about({ state, running_revision, revision }) {
  const isOld = running_revision !== null && running_revision !== revision;
  return html`${
    state.why
      ? html`<div class="note ${state.name === "running" ? "plain" : ""}" role="status">
          ${state.why}${state.fix ? html`<div class="fix">What to do: ${state.fix}</div>` : nothing}
        </div>`
      : nothing
  }
  ${
    isOld
      ? html`<div class="note plain">
          It runs revision ${running_revision}; revision ${revision} is used after a restart.
        </div>`
      : nothing
  }`;
}
