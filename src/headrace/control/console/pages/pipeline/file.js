// The flow file of a pipeline in its revisions, and a new one by those who may write it.

/** @import {Pipeline, Revision} from "../../answers.js" */
/** @import {Tab} from "../pipeline.js" */
import { ask, get, Problem } from "../../api.js";
import { findingList } from "../../findings.js";
import { begin, operationList, operationsOf } from "../../operations.js";
import { ago, notify, problem, shown } from "../../parts.js";
import { html, nothing } from "../../vendor/lit-html/lit-html.js";

/** @type {Tab} */
export const file = (place, name) => {
  /** @type {string | null} what is being written; null when nothing is */
  let draft = null;
  /** @type {Problem | null} */
  let refusal = null;
  const news = place.news(0, () => /** @type {Promise<Revision[]>} */ (get(`/pipelines/${name}/revisions`)));

  const checks = operationsOf(place, name, ["check"]);
  const check = () => begin(place, `/pipelines/${name}/check`, undefined, "the newest revision is being checked");

  /** @param {Revision} base */
  const keep = async (base) => {
    try {
      /** @type {Pipeline} */
      const kept = await ask("PUT", `/pipelines/${name}`, { text: draft ?? "", base: base.number });
      notify(`revision ${kept.revision} is kept; a restart puts it to work`);
      [draft, refusal] = [null, null];
      place.say({ revision: "" });
      place.refresh();
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      refusal = error;
      place.redraw();
    }
  };

  /** @param {string | null} text */
  const write = (text) => {
    [draft, refusal] = [text, null];
    place.redraw();
  };

  return () =>
    shown(news, (revisions) => {
      const newest = /** @type {Revision} */ (revisions[0]);
      if (draft !== null) return editor(draft, refusal, newest, write, keep);
      const chosen = revisions.find(({ number }) => String(number) === place.asked("revision")) ?? newest;
      return html`<div class="bar">
          <label
            >Revision
            <select
              @change=${(/** @type {Event} */ event) => place.say({ revision: /** @type {HTMLSelectElement} */ (event.target).value })}
            >
              ${revisions.map(({ number }) => html`<option ?selected=${number === chosen.number}>${number}</option>`)}
            </select></label
          >
          <small>by ${chosen.author}, ${ago(chosen.at)} ago</small>
          <span class="end buttons">
            ${place.may("operator") ? html`<button @click=${check}>Check</button>` : nothing}
            ${place.may("admin") ? html`<button @click=${() => write(chosen.text)}>Edit</button>` : nothing}
          </span>
        </div>
        <pre class="log" tabindex="0" aria-label="Flow file">${chosen.text}</pre>
        <h2>Checks</h2>
        ${operationList(checks, "It was not checked from here yet.", findingList)}`;
    });
};

/**
 * @param {string} draft
 * @param {Problem | null} refusal
 * @param {Revision} newest
 * @param {(text: string | null) => void} write
 * @param {(base: Revision) => void} keep
 */
const editor = (draft, refusal, newest, write, keep) =>
  html`<label class="field">
      <span>Flow file</span>
      <textarea
        rows="22"
        spellcheck="false"
        .value=${draft}
        @change=${(/** @type {Event} */ event) => write(/** @type {HTMLTextAreaElement} */ (event.target).value)}
      ></textarea>
    </label>
    ${refusal ? html`${problem(refusal)}${fieldProblems(refusal)}` : nothing}
    <div class="buttons">
      <button class="primary" @click=${() => keep(newest)}>Keep as revision ${newest.number + 1}</button>
      <button @click=${() => write(null)}>Cancel</button>
    </div>`;

/** @param {Problem} refusal */
export const fieldProblems = ({ fields }) =>
  fields.length
    ? html`<ul>
        ${fields.map(({ line, message }) => html`<li>${line == null ? "" : `line ${line}: `}${message}</li>`)}
      </ul>`
    : nothing;
