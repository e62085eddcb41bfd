"use strict";

/* The settings of the playground's form, and the presets that keep them under a name. */
function byId(id) {
  return document.getElementById(id);
}

const FIELDS = ["kind", "system", "temperature", "top-p", "max-tokens", "seed", "effort", "schema", "tools"];

/* Raises SyntaxError where a field has no JSON; `checkFields` has told the browser so before. */
function readSettings() {
  const number = (id) => byId(id).value === "" ? null : Number(byId(id).value);
  return {
    kind: byId("kind").value, system: byId("system").value.trim(), temperature: number("temperature"), topP: number("top-p"),
    maxTokens: number("max-tokens"), seed: number("seed"), effort: byId("effort").value, schema: readJson("schema"),
    tools: readJson("tools") || [],
  };
}

function readJson(id) {
  return byId(id).value.trim() ? JSON.parse(byId(id).value) : null;
}

function checkFields() {
  const check = (id, isRight, message) => {
    let fits = false;
    try { const value = readJson(id); fits = value === null || isRight(value); } catch { /* It is not JSON. */ }
    byId(id).setCustomValidity(fits ? "" : message);
  };
  check("schema", (value) => typeof value === "object" && !Array.isArray(value), "This is not a JSON object.");
  check("tools", (value) => Array.isArray(value) && value.every((one) => one?.type), "This is not a JSON list of functions.");
}

function fieldValues() {
  return Object.fromEntries(FIELDS.map((id) => [id, byId(id).value]));
}

/* A choice that is not offered any more is left as it is. */
function setFields(values) {
  for (const id of FIELDS.filter((one) => one in values)) {
    const field = byId(id);
    if (!field.options || [...field.options].some((one) => one.value === values[id])) field.value = values[id];
  }
}

class Presets {
  /* `models` returns the models that are chosen; `use` takes those of a preset, whose fields are set. */
  constructor(storage, { models, use }) {
    this.storage = storage;
    this.show("");
    byId("preset-form").addEventListener("submit", (event) => {
      event.preventDefault();
      const name = byId("preset-name").value.trim();
      storage.keepPresets({ ...this.without(name), [name]: { fields: fieldValues(), models: models() } });
      this.show(name);
      byId("preset-dialog").close();
    });
    byId("preset").addEventListener("change", () => {
      const preset = storage.presets()[byId("preset").value];
      byId("forget").hidden = !preset;
      if (!preset) return;
      setFields(preset.fields);
      use(preset.models);
    });
    byId("forget").addEventListener("click", () => {
      storage.keepPresets(this.without(byId("preset").value));
      this.show("");
    });
  }

  without(name) {
    const { [name]: _, ...others } = this.storage.presets();
    return others;
  }

  show(chosen) {
    const names = Object.keys(this.storage.presets());
    byId("preset").replaceChildren(new Option("None", ""), ...names.map((name) => new Option(name, name)));
    byId("preset").value = names.includes(chosen) ? chosen : "";
    byId("forget").hidden = !byId("preset").value;
  }
}
