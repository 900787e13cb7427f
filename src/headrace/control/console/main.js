// Starts the console: who is signed in, which page an address means, and the frame around pages.

/** @import {Me} from "./answers.js" */
/** @import {Page} from "./place.js" */
import { get, Problem, useCsrf } from "./api.js";
import { frame, useTheme } from "./frame.js";
import { signIn } from "./pages/sign-in.js";
import { go, Place } from "./place.js";
import { html, render } from "./vendor/lit-html/lit-html.js";

/** @type {[RegExp, () => Promise<Page>][]} what stands behind /ui/, and the page that it means */
const ROUTES = [
  [/^$/, async () => (await import("./pages/overview.js")).overview],
  [/^new$/, async () => (await import("./pages/wizard.js")).wizard],
  [/^pipelines\/([^/]+)(?:\/([^/]+))?$/, async () => (await import("./pages/pipeline.js")).pipeline],
  [/^verifications$/, async () => (await import("./pages/verifications.js")).verifications],
  [/^alerts(?:\/(history|rules|silences|channels))?$/, async () => (await import("./pages/alerts.js")).alerts],
  [/^users$/, async () => (await import("./pages/users.js")).users],
  [/^audit$/, async () => (await import("./pages/audit.js")).audit],
];
const ROOT = "/ui/";
const app = /** @type {HTMLElement} */ (document.getElementById("app"));

/** @type {Place | null} */
let place = null;
/** How often a page was asked for: who was overtaken while it waited draws nothing. */
let turns = 0;

/** Who is signed in; null when nobody is. */
async function whoIsThere() {
  try {
    /** @type {Me} */
    const me = await get("/me");
    useCsrf(me.csrf);
    return me;
  } catch (error) {
    if (error instanceof Problem && error.status === 401) return null;
    throw error;
  }
}

/** Shows the page that the address means. */
async function open() {
  const turn = ++turns;
  place?.leave();
  place = null;
  let me;
  try {
    me = await whoIsThere();
    if (turn !== turns) return;
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    if (turn !== turns) return;
    render(
      html`<main class="alone">
        <h1>headrace</h1>
        <p role="alert">${error.message}: ${error.fix}</p>
      </main>`,
      app,
    );
    setTimeout(open, 3000);
    return;
  }
  if (me === null) {
    document.title = "Sign in · headrace";
    render(signIn(open), app);
    return;
  }
  await show(me, turn);
}

/**
 * @param {Me} me
 * @param {number} turn
 */
async function show(me, turn) {
  const path = location.pathname.slice(ROOT.length);
  const route = ROUTES.map(([pattern, load]) => ({ found: pattern.exec(path), load })).find(({ found }) => found);
  const page = route ? await route.load() : unknown;
  if (turn !== turns) return;
  let isDue = false;
  const redraw = () => {
    if (isDue) return;
    isDue = true;
    requestAnimationFrame(() => {
      isDue = false;
      if (place !== here) return;
      render(frame(here, path, draw(), open), app);
      document.title = `${here.title} · headrace`;
    });
  };
  const parts = (route?.found ?? []).slice(1).map((part) => part ?? "");
  const here = new Place(me, parts, redraw, open);
  place = here;
  const draw = page(here);
  redraw();
}

/** @type {Page} */
const unknown = (here) => {
  here.title = "Not found";
  return () =>
    html`<h1>There is no such page</h1>
      <p><a href=${ROOT}>All pipelines</a></p>`;
};

/**
 * Follows a link of ours without loading everything again.
 * @param {MouseEvent} event
 */
function follow(event) {
  const link = event.target instanceof Element ? event.target.closest("a") : null;
  const isPlain = event.button === 0 && !event.metaKey && !event.ctrlKey && !event.shiftKey && !event.altKey;
  if (!link || !isPlain || link.target || link.origin !== location.origin || !link.pathname.startsWith(ROOT)) return;
  if (link.hash) return;
  event.preventDefault();
  go(link.pathname + link.search);
}

useTheme();
document.addEventListener("click", follow);
window.addEventListener("popstate", open);
await open();
