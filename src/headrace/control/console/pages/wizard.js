// A new pipeline in five clicks: where from, where to, the flow file that comes of it, its checks, and the start.
//
// The flow file is what counts: the first two steps only write it, and it may be changed before it is kept.

/** @import {Operation} from "../answers.js" */
/** @import {Page, Place} from "../place.js" */
import { ask, get, Problem } from "../api.js";
import { findingList } from "../findings.js";
import { doing, field, problem } from "../parts.js";
import { go } from "../place.js";
import { html, nothing } from "../vendor/lit-html/lit-html.js";
import { fieldProblems } from "./pipeline/file.js";
import { flowFile, SOURCES, TARGETS } from "./wizard-text.js";

const STEPS = ["Source", "Target", "Flow file", "Checks"];
const LOOK_MS = 500;

/**
 * @typedef {object} Draft
 * @property {number} step
 * @property {Record<string, string>} given what was written into fields
 * @property {string} text the flow file
 * @property {Problem | null} refusal
 * @property {Operation | null} check
 * @property {boolean} isBusy
 */

/** @type {Page} */
export const wizard = (place) => {
  place.title = "New pipeline";
  /** @type {Draft} */
  const draft = {
    step: 0,
    given: { source: "mysql", target: "lake" },
    text: "",
    refusal: null,
    check: null,
    isBusy: false,
  };
  const secrets = place.news(0, () => /** @type {Promise<string[]>} */ (get("/secrets")));
  /** @param {Partial<Draft>} values */
  const set = (values) => {
    Object.assign(draft, values);
    place.redraw();
  };
  return () =>
    html`<div class="head"><h1>New pipeline</h1></div>
      <ol class="steps">
        ${STEPS.map((name, index) => html`<li aria-current=${index === draft.step ? "step" : "false"}>${name}</li>`)}
      </ol>
      ${[() => sourceStep(draft, secrets.value ?? [], set), () => targetStep(draft, secrets.value ?? [], set), () => fileStep(place, draft, set), () => checkStep(place, draft, set)][draft.step]?.()}`;
};

/**
 * @param {Draft} draft
 * @param {string[]} secrets
 * @param {(values: Partial<Draft>) => void} set
 */
const sourceStep = (draft, secrets, set) =>
  form(
    draft,
    set,
    1,
    html` ${choice("source", "Where changes come from", SOURCES, draft, set)}
    ${fields(SOURCES[draft.given["source"] ?? ""]?.fields ?? [], draft, secrets)}`,
    html`<button class="primary">Next: the target</button>`,
  );

/**
 * @param {Draft} draft
 * @param {string[]} secrets
 * @param {(values: Partial<Draft>) => void} set
 */
const targetStep = (draft, secrets, set) =>
  form(
    draft,
    set,
    2,
    html` ${choice("target", "Where they go", TARGETS, draft, set)}
    ${fields(TARGETS[draft.given["target"] ?? ""]?.fields ?? [], draft, secrets)}`,
    html` <button type="button" @click=${() => set({ step: 0 })}>Back</button
      ><button class="primary">Next: the flow file</button>`,
  );

/**
 * @param {Draft} draft
 * @param {(values: Partial<Draft>) => void} set
 * @param {number} next
 * @param {unknown} content
 * @param {unknown} buttons
 */
function form(draft, set, next, content, buttons) {
  /** @param {SubmitEvent} event */
  const submit = (event) => {
    event.preventDefault();
    const given = { ...draft.given, ...read(/** @type {HTMLFormElement} */ (event.target)) };
    set({ given, step: next, ...(next === 2 ? { text: flowFile(given) } : {}) });
  };
  return html`<form class="card" @submit=${submit}>
    ${content}
    <div class="buttons">${buttons}</div>
  </form>`;
}

/** @param {HTMLFormElement} from */
function read(from) {
  /** @type {Record<string, string>} */
  const given = {};
  for (const control of from.elements) {
    if (control instanceof HTMLInputElement && control.type === "checkbox")
      given[control.name] = control.checked ? "yes" : "";
    else if (control instanceof HTMLInputElement && control.type === "radio")
      control.checked && (given[control.name] = control.value);
    else if (control instanceof HTMLInputElement || control instanceof HTMLSelectElement)
      given[control.name] = control.value;
  }
  return given;
}

/**
 * @param {string} name
 * @param {string} legend
 * @param {typeof SOURCES} kinds
 * @param {Draft} draft
 * @param {(values: Partial<Draft>) => void} set
 */
const choice = (name, legend, kinds, draft, set) =>
  html`<fieldset>
    <legend>${legend}</legend>
    ${Object.entries(kinds).map(
      ([kind, { text }]) =>
        html`<label class="choice">
          <input
            type="radio"
            name=${name}
            value=${kind}
            .checked=${draft.given[name] === kind}
            @change=${(/** @type {Event} */ event) => set({ given: { ...draft.given, ...read(/** @type {HTMLFormElement} */ (/** @type {HTMLInputElement} */ (event.target).form)) } })}
          />
          ${text}</label
        >`,
    )}
  </fieldset>`;

/**
 * @param {import("./wizard-text.js").Field[]} wanted
 * @param {Draft} draft
 * @param {string[]} secrets
 */
const fields = (wanted, draft, secrets) =>
  wanted.map(({ name, label, hint, kind = "text", is, pattern, isOptional }) => {
    const value = draft.given[name] ?? is ?? "";
    if (kind === "yes")
      return html`<label class="choice spaced"
        ><input type="checkbox" name=${name} .checked=${value === "yes"} /> ${label}</label
      >`;
    if (kind === "secret")
      return field(
        label,
        html`<select name=${name} required>
          ${secrets.map((secret) => html`<option ?selected=${secret === value}>${secret}</option>`)}
        </select>`,
        secrets.length
          ? (hint ?? nothing)
          : "the server has no secrets yet: put the password into a file of its directory of secrets (DIR/secrets/NAME), and open this page again",
      );
    return field(
      label,
      html`<input
        name=${name}
        type=${kind}
        .value=${value}
        ?required=${!isOptional}
        pattern=${pattern ?? ".*"}
        autocomplete="off"
      />`,
      hint ?? nothing,
    );
  });

/**
 * @param {Place} place
 * @param {Draft} draft
 * @param {(values: Partial<Draft>) => void} set
 */
function fileStep(place, draft, set) {
  /** @param {SubmitEvent} event */
  const submit = (event) => {
    event.preventDefault();
    const given = new FormData(/** @type {HTMLFormElement} */ (event.target));
    create(
      place,
      { ...draft, text: String(given.get("text")), given: { ...draft.given, name: String(given.get("name")) } },
      set,
    );
  };
  return html`<form class="card" @submit=${submit}>
    ${field("Name of the pipeline", html`<input name="name" required pattern="[a-z0-9][a-z0-9_\\-]{0,62}" .value=${draft.given["name"] ?? draft.given["database"] ?? ""} autocomplete="off" />`, "lower-case letters, digits, - and _")}
    ${field("Flow file", html`<textarea name="text" rows="18" spellcheck="false" .value=${draft.text}></textarea>`, "all that headrace can do may be written here; secrets as ${NAME}")}
    ${draft.refusal ? html`${problem(draft.refusal)}${fieldProblems(draft.refusal)}` : nothing}
    <div class="buttons">
      <button type="button" @click=${() => set({ step: 1, refusal: null })}>Back</button
      ><button class="primary" ?disabled=${draft.isBusy}>Keep and check</button>
    </div>
  </form>`;
}

/**
 * @param {Place} place
 * @param {Draft} draft
 * @param {(values: Partial<Draft>) => void} set
 */
async function create(place, draft, set) {
  const { text, given } = draft;
  set({ text, given, isBusy: true, refusal: null });
  try {
    await ask("POST", "/pipelines", { name: given["name"], text });
    set({ step: 3, isBusy: false });
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    set({ refusal: error, isBusy: false });
    return;
  }
  await check(place, given["name"] ?? "", set);
}

/**
 * Asks for a check, and looks until it is over.
 * @param {Place} place
 * @param {string} name
 * @param {(values: Partial<Draft>) => void} set
 */
async function check(place, name, set) {
  set({ check: null });
  /** @type {Operation | undefined} */
  let found = await doing(() => ask("POST", `/pipelines/${name}/check`), "");
  while (found && found.state === "running" && !place.isLeft) {
    const { id } = found;
    await new Promise((over) => setTimeout(over, LOOK_MS));
    found = await doing(() => get(`/pipelines/${name}/operations/${id}`), "");
  }
  set({ check: found ?? null });
}

/**
 * @param {Place} place
 * @param {Draft} draft
 * @param {(values: Partial<Draft>) => void} set
 */
function checkStep(place, draft, set) {
  const name = draft.given["name"] ?? "";
  const start = async () => {
    const isBegun = await doing(
      () => ask("POST", `/pipelines/${name}/start`).then(() => true),
      `${name} is being started`,
    );
    if (isBegun) go(`/ui/pipelines/${name}`);
  };
  const { check: found } = draft;
  return html`<div class="card">
    <p role="status">
      ${found === null ? "The pipeline is kept. Its connections, settings and tables are being checked …" : found.state === "done" ? "The pipeline is kept, and nothing stands in its way." : html`The pipeline is kept. ${found.why}.`}
    </p>
    ${found ? findingList(found.result) : nothing}
    <div class="buttons">
      <a class="button" href="/ui/pipelines/${name}/file">Change the flow file</a>
      <button ?disabled=${found === null} @click=${() => check(place, name, set)}>Check again</button>
      <button class="primary" ?disabled=${found === null} @click=${start}>Start</button>
    </div>
  </div>`;
}
