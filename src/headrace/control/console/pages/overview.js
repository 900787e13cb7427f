// All pipelines: what needs attention first, then every line with what passes through it. A thousand of them stay usable: fifty are drawn.

/** @import {Line, StateName} from "../answers.js" */
/** @import {Page, Place} from "../place.js" */
import { get } from "../api.js";
import { history, remembered } from "../history.js";
import { ago, badge, empty, shown, sparkline, table } from "../parts.js";
import { compact, count, duration, time } from "../show.js";
import { repeat } from "../vendor/lit-html/directives/repeat.js";
import { html, nothing } from "../vendor/lit-html/lit-html.js";

const EVERY_S = 2;
const PAGE = 50;
const MOST_TROUBLES = 5;
/** @type {StateName[]} */
const STATES = ["running", "starting", "stalled", "waiting", "failed", "stopping", "stopped"];
/** @type {StateName[]} worst first */
const TROUBLES = ["failed", "stalled", "waiting"];

/** @typedef {Line & {rate: number | null, lag: number | null, watermark: string | null}} Summed */

/** @type {Record<string, (one: Summed, other: Summed) => number>} */
const ORDERS = {
  name: (one, other) => one.name.localeCompare(other.name),
  rate: (one, other) => (other.rate ?? -1) - (one.rate ?? -1),
  delay: (one, other) => (other.lag ?? -1) - (one.lag ?? -1),
  state: (one, other) => urgency(other) - urgency(one) || one.name.localeCompare(other.name),
};

/** @type {Page} */
export const overview = (place) => {
  place.title = "Pipelines";
  const news = place.news(EVERY_S, async () => {
    /** @type {Line[]} */
    const lines = await get("/overview");
    const summed = lines.map(sum);
    for (const line of summed) remembered(`rate ${line.name}`, line.rate);
    return summed;
  });
  return () =>
    html`<div class="head">
        <h1>Pipelines</h1>
        ${place.may("admin") ? html`<div class="buttons"><a class="button primary" href="/ui/new">New pipeline</a></div>` : nothing}
      </div>
      ${shown(news, (lines) => (lines.length ? all(place, lines) : first(place)))}`;
};

/**
 * A pipeline is as slow as its slowest flow, and as fast as all of them together.
 * @param {Line} line
 * @returns {Summed}
 */
function sum(line) {
  const lags = line.flows.flatMap((flow) => flow.lag_ms ?? []);
  const rates = line.flows.flatMap((flow) => flow.rows_per_s ?? []);
  const marks = line.flows.flatMap((flow) => flow.watermark ?? []);
  return {
    ...line,
    rate: rates.length ? rates.reduce((one, other) => one + other) : null,
    lag: lags.length ? Math.max(...lags) / 1000 : null,
    watermark: marks.sort()[0] ?? null,
  };
}

/** @param {Summed} line */
const urgency = (line) =>
  TROUBLES.includes(line.state.name) ? TROUBLES.length - TROUBLES.indexOf(line.state.name) : 0;

/**
 * @param {Place} place
 * @param {Summed[]} lines
 */
const all = (place, lines) => html`${tiles(place, lines)} ${attention(lines)} ${list(place, lines)}`;

/** @param {Place} place */
const first = (place) =>
  empty(
    "There is no pipeline yet.",
    place.may("admin")
      ? html`<a class="button primary" href="/ui/new">Make the first one</a>`
      : "An admin can make one.",
  );

/**
 * @param {Place} place
 * @param {Summed[]} lines
 */
function tiles(place, lines) {
  const states = STATES.map((name) => ({ name, number: lines.filter((line) => line.state.name === name).length }));
  const rate = lines.reduce((total, line) => total + (line.rate ?? 0), 0);
  const lags = lines.flatMap((line) => line.lag ?? []);
  const wanted = place.asked("state");
  return html`<div class="tiles">
    <div class="tile"><small>rows a second</small><b>${compact(rate)}</b></div>
    <div class="tile"><small>longest delay</small><b>${duration(lags.length ? Math.max(...lags) : null)}</b></div>
    ${states
      .filter(({ number, name }) => number || name === wanted)
      .map(
        ({ name, number }) =>
          html`<button
            class="tile"
            aria-current=${String(name === wanted)}
            @click=${() => place.say({ state: name === wanted ? "" : name, page: "" })}
          >
            <span class="state ${name}">${name}</span><b>${count(number)}</b>
          </button>`,
      )}
  </div>`;
}

/** @param {Summed[]} lines */
function attention(lines) {
  const troubled = lines.filter((line) => TROUBLES.includes(line.state.name)).sort(ORDERS["state"]);
  if (!troubled.length) return nothing;
  return html`<section aria-label="Needs attention">
    ${troubled.slice(0, MOST_TROUBLES).map(
      ({ name, state }) =>
        html`<div class="note">
          ${badge(state)} <a href="/ui/pipelines/${name}"><strong>${name}</strong></a>
          <small>since ${ago(state.since)}</small>
          <div>${state.why}</div>
          ${state.fix ? html`<div class="fix">What to do: ${state.fix}</div>` : nothing}
        </div>`,
    )}
    ${troubled.length > MOST_TROUBLES ? html`<p class="muted">and ${count(troubled.length - MOST_TROUBLES)} more below</p>` : nothing}
  </section>`;
}

/**
 * @param {Place} place
 * @param {Summed[]} lines
 */
function list(place, lines) {
  const [text, state, order] = [place.asked("q").toLowerCase(), place.asked("state"), place.asked("sort") || "name"];
  const found = lines
    .filter((line) => (!state || line.state.name === state) && matches(line, text))
    .sort(ORDERS[order] ?? ORDERS["name"]);
  const last = Math.max(0, Math.ceil(found.length / PAGE) - 1);
  const page = Math.min(Number(place.asked("page")) || 0, last);
  const rows = repeat(found.slice(page * PAGE, (page + 1) * PAGE), (line) => line.name, row);
  return html`<div class="bar">
      <input
        type="search"
        aria-label="Find pipelines, sources and flows"
        placeholder="Find …"
        .value=${place.asked("q")}
        @input=${(/** @type {InputEvent} */ event) => place.say({ q: /** @type {HTMLInputElement} */ (event.target).value, page: "" })}
      />
      <label
        >Order
        <select
          @change=${(/** @type {Event} */ event) => place.say({ sort: /** @type {HTMLSelectElement} */ (event.target).value })}
        >
          ${Object.keys(ORDERS).map((name) => html`<option ?selected=${name === order}>${name}</option>`)}
        </select></label
      >
      <small class="end" role="status"
        >${found.length === lines.length ? "" : `${count(found.length)} of `}${count(lines.length)} pipelines</small
      >
    </div>
    ${
      found.length
        ? table(
            "Pipelines",
            [
              "Pipeline",
              "State",
              ["Rows a second", "number"],
              ["Delay", "number"],
              "Watermark",
              ["Set aside", "number"],
              "Why",
            ],
            rows,
          )
        : empty("No pipeline matches.")
    }
    ${last ? pager(place, page, last) : nothing}`;
}

/**
 * @param {Line} line
 * @param {string} text
 */
const matches = (line, text) =>
  !text ||
  [line.name, ...line.sources.map(({ source }) => source), ...line.flows.map(({ flow }) => flow)].some((name) =>
    name.toLowerCase().includes(text),
  );

/** @param {Summed} line */
const row = (line) =>
  html`<tr>
    <th scope="row"><a href="/ui/pipelines/${line.name}">${line.name}</a></th>
    <td>${badge(line.state)} <small>${ago(line.state.since)}</small></td>
    <td class="number">${sparkline(history(`rate ${line.name}`))}${compact(line.rate)}</td>
    <td class="number">${duration(line.lag)}</td>
    <td><span class="when">${time(line.watermark)}</span></td>
    <td class="number">
      ${count(line.flows.length ? line.flows.reduce((total, flow) => total + flow.failed, 0) : null)}
    </td>
    <td class="why" title=${line.state.why}>${line.state.why}</td>
  </tr>`;

/**
 * @param {Place} place
 * @param {number} page
 * @param {number} last
 */
const pager = (place, page, last) =>
  html`<nav class="pager" aria-label="Pages of the list">
    <button ?disabled=${page === 0} @click=${() => place.say({ page: page > 1 ? String(page - 1) : "" })}>
      Before
    </button>
    <span>${page + 1} of ${last + 1}</span>
    <button ?disabled=${page === last} @click=${() => place.say({ page: String(page + 1) })}>Next</button>
  </nav>`;
