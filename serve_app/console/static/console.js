"use strict";

/* Copying. Without TLS, browsers offer no clipboard; then the text is selected and copied as a person would. */
async function copyText(text, button) {
  if (navigator.clipboard) {
    await navigator.clipboard.writeText(text);
  } else {
    const box = document.createElement("textarea");
    box.value = text;
    box.className = "unseen";
    button.after(box);  // Within an open dialog nothing else can be selected.
    box.select();
    document.execCommand("copy");
    box.remove();
    button.focus();
  }
  button.textContent = "Copied";
  setTimeout(() => { button.textContent = "Copy"; }, 1500);
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (!button) return;
  if (button.dataset.toggle) {
    const open = document.getElementById(button.dataset.toggle).classList.toggle("open");
    button.setAttribute("aria-expanded", String(open));
  }
  if (button.dataset.opens) document.getElementById(button.dataset.opens).showModal();
  if ("closes" in button.dataset) button.closest("dialog").close();
  if (button.dataset.copy) copyText(document.getElementById(button.dataset.copy).textContent, button);
  if ("copyShown" in button.dataset) copyText(button.closest(".snippets").querySelector("pre:not([hidden])").textContent, button);
  if (button.matches(TAB)) chooseTab(button);
});

/* Tabs: the arrow keys move between them, and the language that was chosen last is kept for all pages. */
const TAB = ".snippets [role=tab]";
function chooseTab(tab) {
  for (const one of tab.parentElement.querySelectorAll("[role=tab]")) {
    one.setAttribute("aria-selected", String(one === tab));
    one.tabIndex = one === tab ? 0 : -1;
    document.getElementById(one.getAttribute("aria-controls")).hidden = one !== tab;
  }
  localStorage.setItem("language", tab.textContent);
}
document.addEventListener("keydown", (event) => {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!step || !event.target.matches(TAB)) return;
  const tabs = [...event.target.parentElement.querySelectorAll("[role=tab]")];
  const next = tabs[(tabs.indexOf(event.target) + step + tabs.length) % tabs.length];
  chooseTab(next);
  next.focus();
});

/* Uploads: the form's place in the address bar stays, and an error is shown beside the file that was chosen. */
document.addEventListener("submit", (event) => {
  const form = event.target;
  if (!("upload" in form.dataset)) return;
  event.preventDefault();
  const [button, bar, note] = ["button.main", "progress", ".note"].map((one) => form.querySelector(one));
  const end = (message) => {
    button.disabled = false;
    bar.hidden = true;
    note.textContent = message;
    note.hidden = !message;
  };
  const sending = new XMLHttpRequest();
  sending.open("POST", form.action);
  sending.setRequestHeader("accept", "application/json");
  sending.setRequestHeader("x-csrf-token", csrfToken());
  sending.upload.onprogress = ({ loaded, total }) => { bar.value = loaded / total; };
  sending.onerror = () => end("The connection ended before the file was stored. Please try again.");
  sending.onload = () => {
    if (sending.status < 300) location.assign(sending.responseURL);
    else if (sending.status === 401) location.assign("/console/sign-in");
    else end(messageOf(sending.responseText));
  };
  sending.send(new FormData(form));
  button.disabled = true;
  bar.hidden = false;
  note.hidden = true;
});
function csrfToken() {
  return JSON.parse(document.body.getAttribute("hx-headers"))["X-CSRF-Token"];
}
function messageOf(answer) {
  try { return JSON.parse(answer).error.message; } catch { return "The service did not answer as expected. Please try again."; }
}

/* What the browser keeps of the playground ends with the session, in all tabs. */
document.addEventListener("submit", (event) => {
  if (!event.target.action.endsWith("/console/sign-out")) return;
  sessionStorage.clear();
  localStorage.clear();
  localStorage.setItem("signed-out", String(Date.now()));
});
window.addEventListener("storage", ({ key }) => { if (key === "signed-out") sessionStorage.clear(); });

const themeSwitch = document.querySelector("[data-theme-switch]");
if (themeSwitch && !document.documentElement.dataset.theme && matchMedia("(prefers-color-scheme: dark)").matches) {
  themeSwitch.value = "light";
  themeSwitch.textContent = "Light";
}

/* Live parts: what is open or has the focus is not replaced, and a hidden page asks for nothing. What a form of htmx gets
   is always shown, also an error. */
document.addEventListener("htmx:beforeSwap", (event) => {
  const { target, requestConfig } = event.detail;
  if (requestConfig.verb !== "get") event.detail.shouldSwap = true;
  else if (target.querySelector("details[open], dialog[open]") || (document.activeElement !== target && target.contains(document.activeElement))) {
    event.detail.shouldSwap = false;
  }
});
document.addEventListener("htmx:beforeRequest", (event) => {
  if (document.hidden && event.detail.requestConfig.verb === "get") event.preventDefault();
});

/* After each load: cells and the lines under them name their column, for the cards of small screens; the kept language
   is chosen. */
function prepare() {
  for (const table of document.querySelectorAll(".table > table")) {
    const heads = [...table.querySelectorAll("thead th")];
    const titles = heads.map((head) => [...head.childNodes].map((part) => part.textContent.trim()));
    for (const row of table.tBodies[0].rows) {
      [...row.cells].forEach((cell, i) => {
        [cell, ...cell.querySelectorAll(".under")].forEach((part, j) => { part.dataset.label ??= titles[i][j] ?? ""; });
      });
    }
  }
  const kept = localStorage.getItem("language");
  for (const tab of document.querySelectorAll(`${TAB}[aria-selected=false]`)) {
    if (tab.textContent === kept) chooseTab(tab);
  }
}
document.addEventListener("htmx:afterSettle", prepare);
prepare();
