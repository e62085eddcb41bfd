"use strict";

/* The playground: the message box and its images, the lanes above it, and the code of what was sent. */
const MAX_IMAGE_BYTES = 4_000_000;

class Playground {
  constructor(form) {
    this.form = form;
    this.storage = openStorage(form.dataset.owner);
    this.lanes = [];
    this.images = [];
    this.presets = new Presets(this.storage, {
      models: () => this.lanes.map(({ select }) => select.value),
      use: (models) => this.setLanes(models.map((model, i) => ({ model, turns: this.lanes[i]?.turns }))),
    });
    this.restore();
    this.listen();
  }

  restore() {
    const kept = this.storage.conversation();
    const asked = new URLSearchParams(location.search).get("model");
    if (kept) {
      setFields(kept.fields);
      byId("prompt").value = kept.prompt;
    }
    this.setLanes(!kept || (asked && asked !== kept.lanes[0].model) ? [{ model: asked }] : kept.lanes);
    history.replaceState(null, "", location.pathname);  // A reload keeps the conversation.
    if (matchMedia("(max-width: 820px)").matches) byId("settings").open = false;
  }

  listen() {
    const { form } = this;
    form.addEventListener("submit", (event) => { event.preventDefault(); this.send(); });
    form.addEventListener("invalid", () => { byId("settings").open = true; }, true);
    form.addEventListener("input", () => this.changed());
    form.addEventListener("keydown", (event) => { if (event.key === "Escape") this.lanes.forEach((lane) => lane.stop()); });
    byId("prompt").addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      form.requestSubmit();
    });
    byId("image").addEventListener("change", () => this.addImages());
    byId("compare").addEventListener("click", () => this.compare());
    byId("clear").addEventListener("click", () => {
      this.setLanes(this.lanes.map(({ select }) => ({ model: select.value })));
      this.showError("");
      byId("prompt").focus();
    });
    byId("view-code").addEventListener("click", () => { if (form.reportValidity()) this.showCode(); });
  }

  /* After each change: fields are offered if one of the models, or the interface, has what they set. */
  changed() {
    checkFields();
    const can = (ability) => this.lanes.some((lane) => lane.can(ability));
    for (const field of this.form.querySelectorAll("[data-needs]")) field.hidden = !can(field.dataset.needs);
    for (const field of this.form.querySelectorAll("[data-for]")) field.hidden = byId("kind").value !== field.dataset.for;
    byId("image-label").hidden = !can("images");
    const isRunning = this.lanes.some((lane) => lane.running);
    for (const id of ["send", "clear", "compare", "preset"]) byId(id).disabled = isRunning;
    this.storage.keepConversation({
      fields: fieldValues(), prompt: byId("prompt").value,
      lanes: this.lanes.map(({ select, turns }) => ({ model: select.value, turns })),
    });
  }

  /* Show a lane for each {model, turns}; a model that is not offered gives way to one that no lane has yet. */
  setLanes(wanted) {
    this.lanes = [];
    for (const { model, turns = [] } of wanted) {
      const lane = new Lane(byId("lane"), {
        settings: readSettings, changed: () => this.changed(), again: (one) => this.again(one), currency: this.form.dataset.currency,
      });
      const names = [...lane.select.options].map((one) => one.value);
      const others = names.filter((name) => !this.lanes.some(({ select }) => select.value === name));
      lane.select.value = names.includes(model) ? model : others[0] || names[0];
      lane.turns = turns;
      this.lanes.push(lane);
    }
    byId("lanes").replaceChildren(...this.lanes.map(({ section }) => section));
    this.lanes.forEach((lane) => lane.show());
    byId("compare").textContent = this.lanes.length > 1 ? "Stop comparing" : "Compare";
    this.changed();
  }

  compare() {
    const shown = this.lanes.map(({ select, turns }) => ({ model: select.value, turns }));
    this.setLanes(shown.length > 1 ? shown.slice(0, 1) : [...shown, {}]);
  }

  /* Send the message to each lane. If no model answers, it is in its box again, with the error beside it. */
  async send() {
    const text = byId("prompt").value.trim();
    if (!text || this.lanes.some((lane) => lane.running)) return;
    if (this.lanes.some((lane) => lane.openCalls().length)) {
      this.showError("The model waits for the results of its function calls.");
      this.form.querySelector(".results textarea").focus();
      return;
    }
    const { images } = this;
    this.showError("");
    this.setDraft("", []);
    const errors = await Promise.all(this.lanes.map((lane) => lane.say(text, images)));
    if (!this.lanes.every((lane) => lane.isUnanswered())) return;
    this.showError(errors.find(Boolean) || "");
    if (!byId("prompt").value) this.setDraft(text, images);
    this.changed();
  }

  again(lane) {
    if (lane.turns.at(-1).text === byId("prompt").value.trim()) this.setDraft("", []);
    this.showError("");
    lane.ask();
  }

  setDraft(text, images) {
    this.images = images;
    byId("prompt").value = text;
    byId("images").replaceChildren(...images.map((url) => {
      const remove = actionButton("Remove", () => this.setDraft(byId("prompt").value, this.images.filter((one) => one !== url)));
      return element("figure", "", undefined, picture(url), remove);
    }));
  }

  async addImages() {
    const chosen = [...byId("image").files];
    byId("image").value = "";
    const small = chosen.filter((file) => file.size <= MAX_IMAGE_BYTES);
    this.showError(small.length < chosen.length ? `An image may have ${MAX_IMAGE_BYTES / 1e6} MB at most.` : "");
    const read = (file) => new Promise((resolve, reject) => {
      const reader = new FileReader();
      reader.onload = () => resolve(reader.result);
      reader.onerror = () => reject(reader.error);
      reader.readAsDataURL(file);
    });
    const added = await Promise.all(small.map(read));
    this.setDraft(byId("prompt").value, [...this.images, ...added]);
  }

  showError(message) {
    byId("error").textContent = message;
    byId("error").hidden = !message;
  }

  showCode() {
    const lane = this.lanes.find((one) => one.last);
    const { kind, request } = lane?.last || this.lanes[0].request();
    programsOf(kind, request).forEach((text, i) => { byId(`code-${i + 1}`).textContent = text; });
    byId("code-about").textContent = lane ? `As it was sent last to ${request.model}.` : "As the settings are now.";
    byId("code-dialog").showModal();
  }
}

if (byId("play")) new Playground(byId("play"));
