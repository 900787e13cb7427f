// What a page has while it is shown: its address, who looks at it, and news that come again and again.
//
// The address holds all that a page shows (filter, tab, side), so that a link shows somebody else the same, and reloading loses nothing.

/** @import {Me} from "./answers.js" */
/** @import {TemplateResult} from "./vendor/lit-html/lit-html.js" */
import { Problem } from "./api.js";

/** @typedef {(place: Place) => () => TemplateResult} Page made when its address is opened; what it returns draws it */

/**
 * Opens another page of the console.
 * @param {string} address
 */
export function go(address) {
  history.pushState(null, "", address);
  window.dispatchEvent(new PopStateEvent("popstate"));
  window.scrollTo(0, 0);
  document.getElementById("page")?.focus();
}

const ROLES = ["viewer", "operator", "admin"];

/**
 * Something that a page asks for, mostly again and again.
 * @template T
 */
export class News {
  /**
   * @param {() => Promise<T>} ask
   * @param {(problem: Problem | null) => void} told called after each answer
   */
  constructor(ask, told) {
    this.ask = ask;
    this.told = told;
    /** @type {T | undefined} the newest answer; undefined before the first */
    this.value = undefined;
    /** @type {Problem | null} what the newest request came to */
    this.problem = null;
    this.at = 0;
  }

  async fetch() {
    try {
      this.value = await this.ask();
      this.problem = null;
      this.at = Date.now();
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      this.problem = error;
    }
    this.told(this.problem);
  }
}

export class Place {
  /** @type {Set<() => void>} */
  #sleepers = new Set();
  #wishes = 0;
  /** Whether another page is shown by now. */
  isLeft = false;

  /**
   * @param {Me} me
   * @param {string[]} parts of the address, as the route names them
   * @param {() => void} redraw
   * @param {() => void} signedOut called when the session has ended
   */
  constructor(me, parts, redraw, signedOut) {
    this.me = me;
    this.parts = parts;
    this.title = "";
    this.#signedOut = signedOut;
    this.#redraw = redraw;
  }

  #signedOut;
  #redraw;

  /** @param {"operator" | "admin"} role */
  may(role) {
    return ROLES.indexOf(this.me.role) >= ROLES.indexOf(role);
  }

  redraw() {
    if (!this.isLeft) this.#redraw();
  }

  /**
   * What the address says after its question mark.
   * @param {string} name
   */
  asked(name) {
    return new URLSearchParams(location.search).get(name) ?? "";
  }

  /**
   * Changes that, and draws the page again.
   * @param {Record<string, string>} values empty ones are left out
   */
  say(values) {
    history.replaceState(null, "", this.saying(values));
    this.redraw();
  }

  /**
   * The address with other values after its question mark.
   * @param {Record<string, string>} values
   */
  saying(values) {
    const query = new URLSearchParams(location.search);
    for (const [name, value] of Object.entries(values)) {
      if (value) query.set(name, value);
      else query.delete(name);
    }
    const text = query.toString();
    return text ? `${location.pathname}?${text}` : location.pathname;
  }

  /**
   * Asks now, and again each time so long after the answer; not while nobody looks, and only once when `seconds` is 0.
   * @template T
   * @param {number} seconds
   * @param {() => Promise<T>} ask
   * @returns {News<T>}
   */
  news(seconds, ask) {
    const news = new News(ask, (problem) => {
      if (problem?.status === 401) this.#signedOut();
      this.redraw();
    });
    this.#keepAsking(news, seconds);
    return news;
  }

  /** Asks for all news at once: something was done, or something else is to be shown. */
  refresh() {
    this.#wishes += 1;
    for (const wake of this.#sleepers) wake();
  }

  leave() {
    this.isLeft = true;
    this.refresh();
  }

  /**
   * @param {News<unknown>} news
   * @param {number} seconds
   */
  async #keepAsking(news, seconds) {
    while (!this.isLeft) {
      const wish = this.#wishes;
      await news.fetch();
      // An answer that was on its way when somebody wished for news may be of before.
      if (wish === this.#wishes) await this.#sleep(seconds);
    }
  }

  /** @param {number} seconds */
  #sleep(seconds) {
    return new Promise((over) => {
      const wake = () => {
        clearTimeout(timer);
        document.removeEventListener("visibilitychange", look);
        this.#sleepers.delete(wake);
        over(undefined);
      };
      const look = () => {
        if (!document.hidden) wake();
      };
      const timer = seconds ? setTimeout(look, seconds * 1000) : 0;
      if (seconds) document.addEventListener("visibilitychange", look);
      this.#sleepers.add(wake);
    });
  }
}
