"use strict";

/* What the playground keeps in the browser: the conversation in this tab, presets in all tabs. It belongs to one key;
   another key's page deletes it, and so does signing out. */
const KEPT_CHARS = 1_000_000;
const MAX_PRESETS = 20;

function openStorage(owner) {
  const read = (storage, name, otherwise) => {
    try {
      const kept = JSON.parse(storage.getItem(name));
      if (kept?.owner === owner) return kept.value;
      storage.removeItem(name);
    } catch { storage.removeItem(name); }
    return otherwise;
  };
  const write = (storage, name, value) => {
    try { storage.setItem(name, JSON.stringify({ owner, value })); } catch { /* The browser keeps nothing more. */ }
  };
  return {
    conversation: () => read(sessionStorage, "playground", null),
    /* The oldest turns are left out where all would be too much. */
    keepConversation(value) {
      const lanes = value.lanes.map((lane) => ({ ...lane, turns: [...lane.turns] }));
      while (JSON.stringify(lanes).length > KEPT_CHARS) {
        lanes.reduce((one, other) => other.turns.length > one.turns.length ? other : one).turns.shift();
      }
      write(sessionStorage, "playground", { ...value, lanes });
    },
    presets: () => read(localStorage, "playground-presets", {}),
    keepPresets(value) {
      write(localStorage, "playground-presets", Object.fromEntries(Object.entries(value).slice(-MAX_PRESETS)));
    },
  };
}
