// What can be done about a pipeline as it is now. What cannot be undone is asked about first.

/** @import {Pipeline} from "../../answers.js" */
/** @import {Place} from "../../place.js" */
import { ask } from "../../api.js";
import { asked, doing, field } from "../../parts.js";
import { go } from "../../place.js";
import { html, nothing } from "../../vendor/lit-html/lit-html.js";

/**
 * @param {Place} place
 * @param {Pipeline} pipeline
 */
export function actions(place, pipeline) {
  if (!place.may("operator")) return nothing;
  const { name, wanted, state } = pipeline;
  const isWanted = wanted === "running";
  return html`<div class="buttons">
    ${!isWanted || state.name === "failed" ? html`<button class="primary" @click=${() => start(place, name)}>Start</button>` : nothing}
    ${isWanted ? html`<button @click=${() => restart(place, name)}>Restart</button>` : nothing}
    ${isWanted ? html`<button @click=${() => stop(place, name)}>Stop</button>` : nothing}
    <button @click=${() => move(place, pipeline)}>Move</button>
    ${place.may("admin") && !isWanted ? html`<button @click=${() => remove(name)}>Remove</button>` : nothing}
  </div>`;
}

/**
 * @param {Place} place
 * @param {string} name
 */
async function start(place, name) {
  await doing(() => ask("POST", path(name, "start")), `${name} is being started`);
  place.refresh();
}

/**
 * @param {Place} place
 * @param {string} name
 */
async function restart(place, name) {
  const answer = await asked({
    title: `Restart ${name}?`,
    text: "Its process stops at a whole transaction, and a new one goes on there with the newest flow file.",
    yes: "Restart",
    call: `POST /api/v1${path(name, "restart")}`,
  });
  if (answer) await doing(() => ask("POST", path(name, "restart")), `${name} is being restarted`);
  place.refresh();
}

/**
 * @param {Place} place
 * @param {string} name
 */
async function stop(place, name) {
  const answer = await asked({
    title: `Stop ${name}?`,
    text: "It stops at a whole transaction. Nothing is lost: once started it goes on there, as long as its sources keep their logs.",
    yes: "Stop",
    call: `POST /api/v1${path(name, "stop")}`,
  });
  if (answer) await doing(() => ask("POST", path(name, "stop")), `${name} is being stopped`);
  place.refresh();
}

/**
 * @param {Place} place
 * @param {Pipeline} pipeline
 */
async function move(place, { name, placement }) {
  const mode = placement.type === "spark-submit" ? placement.deploy_mode : "local";
  const answer = await asked({
    title: `Move ${name}`,
    text: html`<p>When it runs, it stops where it is and goes on there, from the same positions.</p>
      ${field(
        "Its process is",
        html`<select name="mode">
          <option value="local" ?selected=${mode === "local"}>on the server's machine</option>
          <option value="client" ?selected=${mode === "client"}>begun by spark-submit on the server's machine</option>
          <option value="cluster" ?selected=${mode === "cluster"}>put into the cluster by spark-submit</option>
        </select>`,
      )}
      ${field("Queue of YARN", html`<input name="queue" pattern="[\\w.\\-]+" />`, "only for spark-submit; may be empty")}`,
    yes: "Move",
    call: `POST /api/v1${path(name, "drift")}`,
  });
  if (!answer) return;
  const [to, queue] = [String(answer.get("mode")), String(answer.get("queue"))];
  const wanted = to === "local" ? { type: "local" } : { type: "spark-submit", deploy_mode: to, queue: queue || null };
  await doing(() => ask("POST", path(name, "drift"), { placement: wanted }), `${name} is being moved`);
  place.refresh();
}

/** @param {string} name */
async function remove(name) {
  const answer = await asked({
    title: `Remove ${name}?`,
    text: "The control plane forgets its flow file and its events. Its data, its log and its state stay where they are.",
    yes: "Remove",
    isDangerous: true,
    call: `DELETE /api/v1/pipelines/${name}`,
  });
  if (!answer) return;
  const isDone = await doing(() => ask("DELETE", `/pipelines/${name}`).then(() => true), `${name} is removed`);
  if (isDone) go("/ui/");
}

/**
 * @param {string} name
 * @param {string} verb
 */
const path = (name, verb) => `/pipelines/${encodeURIComponent(name)}/${verb}`;
