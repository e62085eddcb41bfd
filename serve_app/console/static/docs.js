"use strict";

/* The language of examples: chosen once, for all of them */
const LANGUAGE = "manta-language";
function showLanguage(language) {
  document.querySelectorAll(".samples").forEach((samples) => {
    const wanted = samples.querySelector(`[data-sample="${language}"]`);
    if (!wanted) return;
    samples.querySelectorAll("[data-sample]").forEach((one) => { one.hidden = one !== wanted; });
    samples.querySelectorAll("[data-language]").forEach((tab) => {
      tab.setAttribute("aria-selected", String(tab.dataset.language === language));
    });
  });
}
document.addEventListener("click", (event) => {
  const tab = event.target.closest("[data-language]");
  if (!tab) return;
  const top = tab.getBoundingClientRect().top;
  localStorage.setItem(LANGUAGE, tab.dataset.language);
  showLanguage(tab.dataset.language);
  scrollBy(0, tab.getBoundingClientRect().top - top); // Other examples changed their heights.
});
if (localStorage.getItem(LANGUAGE)) showLanguage(localStorage.getItem(LANGUAGE));

/* Search: an index of titles, loaded when the field gets the focus */
const search = document.querySelector("[data-search]");
const found = document.querySelector(".docs-search ul");
let entries;
function rank([title, about], words) {
  const parts = title.toLowerCase().split(/[^a-z0-9]+/);
  let points = 0;
  for (const word of words) {
    if (parts.includes(word)) points += title.includes("_") ? 3 : 5;
    else if (parts.some((part) => part.startsWith(word))) points += 3;
    else if (`${title} ${about}`.toLowerCase().includes(word)) points += 1;
    else return 0;
  }
  return points;
}
function showFound() {
  const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
  const best = words.length && entries
    ? entries.map((entry) => [rank(entry, words), entry]).filter(([points]) => points).sort((a, b) => b[0] - a[0]).slice(0, 12)
    : [];
  found.replaceChildren(...best.map(([, [title, about, address]]) => {
    const item = document.createElement("li");
    const link = item.appendChild(document.createElement("a"));
    link.href = address;
    link.append(title, Object.assign(document.createElement("span"), { textContent: about }));
    return item;
  }));
  if (words.length && entries && !best.length) found.append(Object.assign(document.createElement("li"), { textContent: "Nothing found." }));
  found.hidden = !words.length;
}
search.addEventListener("focus", async () => {
  if (!entries) entries = await (await fetch(search.dataset.search)).json();
  showFound();
});
search.addEventListener("input", showFound);
document.querySelector(".docs-search").addEventListener("submit", (event) => {
  event.preventDefault();
  const link = found.querySelector("a");
  if (link) location.href = link.href;
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") found.hidden = true;
  if (event.key === "/" && !event.target.closest("input, textarea, select")) { event.preventDefault(); search.focus(); }
  if (!event.target.closest(".docs-search") || !["ArrowDown", "ArrowUp"].includes(event.key)) return;
  const places = [search, ...found.querySelectorAll("a")];
  const next = places[places.indexOf(document.activeElement) + (event.key === "ArrowDown" ? 1 : -1)];
  if (next) { event.preventDefault(); next.focus(); }
});
document.addEventListener("click", (event) => {
  if (!event.target.closest(".docs-search") || event.target.closest(".docs-search a")) found.hidden = true;
});

/* Trying a route: the key stays in this tab */
const KEY = "manta-key";
const keys = document.querySelectorAll("[data-key]");
keys.forEach((field) => {
  field.value = sessionStorage.getItem(KEY) || "";
  field.addEventListener("input", () => {
    sessionStorage.setItem(KEY, field.value);
    keys.forEach((other) => { other.value = field.value; });
  });
});

function requestOf(form) {
  const fields = [...form.querySelectorAll("[data-place]")];
  const given = (place) => fields.filter((field) => field.dataset.place === place && field.value);
  let path = form.dataset.path;
  for (const field of given("path")) path = path.replace(`{${field.name}}`, encodeURIComponent(field.value));
  const query = new URLSearchParams(given("query").map((field) => [field.name, field.value]));
  const options = { method: form.dataset.method, headers: {}, credentials: "omit" };
  const key = form.querySelector("[data-key]");
  if (key) options.headers.authorization = `Bearer ${key.value.trim()}`;
  const body = form.querySelector("[data-body]");
  if (body) Object.assign(options.headers, { "content-type": "application/json" });
  if (body) options.body = body.value;
  if (given("form").length) {
    options.body = new FormData();
    for (const field of given("form")) options.body.append(field.name, field.files ? field.files[0] : field.value);
  }
  return [path + (query.size ? `?${query}` : ""), options];
}

async function readInto(response, answer) {
  const type = response.headers.get("content-type") || "";
  if (!/json|text/.test(type)) {
    answer.textContent = `${(await response.blob()).size} bytes of ${type}`;
  } else if (type.startsWith("text/event-stream")) {
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    for (let piece = await reader.read(); !piece.done; piece = await reader.read()) {
      answer.append(piece.value);
      answer.scrollTop = answer.scrollHeight;
    }
  } else {
    const text = await response.text();
    try { answer.textContent = JSON.stringify(JSON.parse(text), null, 2); } catch { answer.textContent = text; }
  }
}

async function send(form) {
  const [status, answer, stop] = ["[data-status]", "[data-answer]", "[data-stop]"].map((one) => form.querySelector(one));
  const button = form.querySelector("button.main");
  const control = new AbortController();
  const started = performance.now();
  stop.onclick = () => control.abort();
  [button.disabled, stop.hidden, answer.hidden, answer.textContent, status.textContent] = [true, false, false, "", "Waiting…"];
  try {
    const [address, options] = requestOf(form);
    const response = await fetch(address, { ...options, signal: control.signal });
    status.textContent = `${response.status} ${response.statusText}`;
    await readInto(response, answer);
    status.textContent += `, ${Math.round(performance.now() - started)} ms`;
  } catch (error) {
    status.textContent = error.name === "AbortError" ? "Stopped." : "The service could not be reached.";
  } finally {
    [button.disabled, stop.hidden] = [false, true];
  }
}
document.addEventListener("submit", (event) => {
  if (!event.target.matches("[data-try]")) return;
  event.preventDefault();
  send(event.target);
});
