// The newest result of each table of each flow of all pipelines: what differs comes first.

/** @import {Verification} from "../answers.js" */
/** @import {Page} from "../place.js" */
import { get } from "../api.js";
import { empty, shown } from "../parts.js";
import { count } from "../show.js";
import { html } from "../vendor/lit-html/lit-html.js";
import { verificationList } from "../verification-list.js";

const EVERY_S = 10;
const MOST = 200;

/** @type {Page} */
export const verifications = (place) => {
  place.title = "Verification";
  const news = place.news(EVERY_S, () => /** @type {Promise<Verification[]>} */ (get("/verifications")));
  return () =>
    html`<div class="head"><h1>Verification</h1></div>
      ${shown(news, (results) => (results.length ? listed(results) : empty("No target was verified yet. A pipeline's tab Verification begins it, once or by a schedule.")))}`;
};

/** @param {Verification[]} results */
function listed(results) {
  const wrong = results.filter(({ ok }) => !ok).length;
  const sorted = results.toSorted((one, other) => Number(one.ok) - Number(other.ok));
  return html`<p role="status">
      ${wrong ? `${count(wrong)} of ${count(results.length)} tables differ, or could not be compared.` : `All ${count(results.length)} tables are the same.`}
    </p>
    ${verificationList(sorted.slice(0, MOST), true)}
    ${results.length > MOST ? html`<p><small>The first ${MOST} of ${count(results.length)}.</small></p>` : ""}`;
}
