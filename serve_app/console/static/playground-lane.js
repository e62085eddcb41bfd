"use strict";

/* A lane: the conversation with one model. Two of them stand side by side to compare models. Every text is set as text,
   never as HTML. */
function element(tag, className, text, ...children) {
  const made = document.createElement(tag);
  made.className = className;
  if (text !== undefined) made.textContent = text;
  made.append(...children);
  return made;
}

function actionButton(text, act) {
  const button = element("button", "plain", text);
  button.type = "button";
  button.addEventListener("click", act);
  return button;
}

class Lane {
  /* `settings` returns the form's settings, `changed` is called after each change, `again` to repeat what failed. */
  constructor(template, { settings, changed, again, currency }) {
    this.section = template.content.firstElementChild.cloneNode(true);
    this.log = this.section.querySelector(".log");
    this.select = this.section.querySelector("select");
    this.settings = settings;
    this.changed = changed;
    this.again = again;
    this.currency = currency;
    this.turns = [];
    this.last = null;  // What was sent last: {kind, request}.
    this.running = null;
    this.select.addEventListener("change", changed);
  }

  can(ability) {
    return this.select.selectedOptions[0].dataset.can.split(" ").includes(ability);
  }

  request() {
    const settings = this.settings();
    const kept = { ...settings, tools: this.can("tools") ? settings.tools : [], effort: this.can("reasoning") ? settings.effort : "" };
    return { kind: settings.kind, request: requestOf(settings.kind, this.select.value, kept, this.turns) };
  }

  /* Ask with a new message, in place of one that was not answered. Returns the error, "" if the model answered. */
  async say(text, images) {
    if (this.isUnanswered()) this.turns.pop();
    this.turns.push({ role: "user", text, images: this.can("images") ? images : [] });
    return this.ask();
  }

  /* Ask with the conversation as it is. */
  async ask() {
    const turn = { role: "assistant", text: "", reasoning: "", calls: [], finish: "", usage: null, ttft: null, duration: 0, cost: null };
    this.last = this.request();
    this.running = new AbortController();
    this.error = "";
    this.show(turn);
    this.changed();
    const start = performance.now();
    try {
      for await (const event of await this.send()) {
        take(turn, event);
        if (turn.ttft === null && (turn.text || turn.reasoning || turn.calls.length)) turn.ttft = (performance.now() - start) / 1000;
        this.update(turn);
      }
    } catch (error) {
      if (error.name === "AbortError") turn.finish = "stopped";
      else this.error = error.message;
    }
    turn.duration = (performance.now() - start) / 1000;
    this.running = null;
    turn.calls = turn.calls.filter(Boolean);
    if (turn.finish === "stopped" || this.error) turn.calls = [];  // They may be incomplete.
    turn.cost = this.costOf(turn.usage);
    const isAnswer = turn.finish && turn.finish !== "stopped";  // It may be without text, if it was all reasoning.
    if (turn.text || isAnswer) this.turns.push(turn);
    this.show();
    this.changed();
    return this.error;
  }

  async send() {
    const reply = await fetch(`/console/playground/${this.last.kind}`, {
      method: "POST", signal: this.running.signal, body: JSON.stringify(this.last.request),
      headers: { "content-type": "application/json", "x-csrf-token": csrfToken() },
    });
    if (reply.status === 401) location.assign("/console/sign-in");
    if (!reply.ok) throw new Error(messageOf(await reply.text()));
    return eventsOf(reply);
  }

  stop() {
    this.running?.abort();
  }

  isUnanswered() {
    return this.turns.at(-1)?.role === "user";
  }

  openCalls() {
    return (this.turns.at(-1)?.calls || []).filter((call) => call.result === null);
  }

  show(running) {
    this.log.replaceChildren(...this.turns.map((turn) => this.shownTurn(turn)));
    this.log.setAttribute("aria-busy", String(Boolean(running)));
    if (running) {
      this.live = this.shownTurn(running);
      this.live.append(element("p", "row", undefined, actionButton("Stop", () => this.stop())));
      this.log.append(this.live);
    } else {
      if (this.error) this.log.append(element("p", "note bad", this.error));
      const hasResults = this.turns.at(-1)?.calls?.length && !this.openCalls().length;
      if (this.isUnanswered() || hasResults) this.log.append(actionButton("Try again", () => this.again(this)));
      if (this.openCalls().length) this.log.append(this.resultForm());
    }
    this.log.scrollTop = this.log.scrollHeight;
  }

  update(turn) {
    const isAtEnd = this.log.scrollHeight - this.log.scrollTop - this.log.clientHeight < 80;
    const isOpen = this.live.querySelector("details")?.open;
    const shown = this.shownTurn(turn);
    if (isOpen && shown.querySelector("details")) shown.querySelector("details").open = true;
    shown.append(this.live.lastElementChild);  // The same button, which may have the focus.
    this.live.replaceWith(shown);
    this.live = shown;
    if (isAtEnd) this.log.scrollTop = this.log.scrollHeight;
  }

  shownTurn(turn) {
    const shown = element("div", `turn ${turn.role}`, undefined, element("div", "who-says", turn.role));
    if (turn.reasoning) {
      shown.append(element("details", "reasoning", undefined, element("summary", "", "Reasoning"), element("div", "text quiet", turn.reasoning)));
    }
    shown.append(element("div", "text", turn.text));
    if (turn.images?.length) shown.append(element("div", "images", undefined, ...turn.images.map(picture)));
    for (const { name, args, result } of (turn.calls || []).filter(Boolean)) {
      shown.append(element("div", "call mono", `${name}(${args})`));
      if (result !== null) shown.append(element("div", "call result mono", result));
    }
    if (turn.finish) shown.append(element("p", "quiet small", this.figures(turn)));
    return shown;
  }

  figures({ usage, ttft, duration, cost, finish }) {
    const parts = [];
    if (usage) {
      parts.push(`${usage.prompt} prompt tokens${usage.cached ? ` (${usage.cached} cached)` : ""}`);
      parts.push(`${usage.completion} completion tokens${usage.reasoning ? ` (${usage.reasoning} reasoning)` : ""}`);
    }
    if (ttft !== null) parts.push(`TTFT ${Math.round(ttft * 1000)} ms`);
    parts.push(`${duration.toFixed(2)} s`);
    if (cost !== null) parts.push(`${cost.toLocaleString("en-US", { maximumSignificantDigits: 6 })} ${this.currency}`);
    return [...parts, `finish reason ${finish}`].join(" · ");
  }

  /* In the service's currency; null where no price is set. */
  costOf(usage) {
    const prices = this.select.selectedOptions[0].dataset.price?.split(" ").map(Number);
    if (!prices || !usage) return null;
    const [input, cached, output] = prices;
    return ((usage.prompt - usage.cached) * input + usage.cached * cached + usage.completion * output) / 1e6;
  }

  resultForm() {
    const calls = this.openCalls();
    const boxes = calls.map((call) => {
      const box = document.createElement("textarea");
      box.rows = 2;
      box.className = "mono";
      return box;
    });
    const send = actionButton("Send results", () => {
      calls.forEach((call, i) => { call.result = boxes[i].value; });
      this.ask();
    });
    send.className = "main";
    const fields = calls.map((call, i) => element("label", "", `Result of ${call.name}`, boxes[i]));
    return element("div", "results", undefined, ...fields, send);
  }
}

function picture(url) {
  const image = document.createElement("img");
  image.src = url;
  image.alt = "Image of the message";
  return image;
}
