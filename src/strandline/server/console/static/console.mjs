// The console in a browser: renews what has changed, counts how long ago things were, asks before acts, knows keys.
// It asks no other server for anything, and does nothing while its tab is hidden.

const { base, csrf, at } = document.body.dataset;
const find = (selector) => document.querySelector(selector);

// ---------------------------------------------------------------- how long ago

const STEPS = [[60, 1, "s"], [3600, 60, "min"], [86400, 3600, "h"], [Infinity, 86400, "days"]];

function tellTimes(root) {
  const now = Date.now();
  for (const time of root.querySelectorAll("time[data-us]")) {
    if (!time.title) time.title = `${time.textContent} UTC`;
    const seconds = Math.round((now - Number(time.dataset.us) / 1000) / 1000);
    const [, size, unit] = STEPS.find(([below]) => Math.abs(seconds) < below);
    const count = Math.floor(Math.abs(seconds) / size);
    const text = seconds < -1 ? `in ${count} ${unit}` : seconds < 2 ? "now" : `${count} ${unit} ago`;
    if (time.textContent !== text) time.textContent = text;
  }
}

// ---------------------------------------------------------------- regions that renew themselves

const waiting = new Map();

function nameOf(element) {
  if (element.id) return `#${CSS.escape(element.id)}`;
  if (element.dataset.act) return `[data-act="${element.dataset.act}"][data-values=${CSS.escape(element.dataset.values)}]`;
  const link = element.getAttribute("href");
  if (link) return `[href="${CSS.escape(link)}"]`;
  const label = element.getAttribute("aria-label");
  return label ? `[aria-label="${CSS.escape(label)}"]` : null;
}

function selects(section) {
  const selection = getSelection();
  return !selection.isCollapsed && section.contains(selection.anchorNode);
}

function renew() {
  for (const [name, region] of waiting) {
    const section = find(`[data-live="${name}"]`);
    if (section && selects(section)) continue; // somebody is about to copy something
    waiting.delete(name);
    if (!section || section.dataset.v === region.version) continue;
    const focused = section.contains(document.activeElement) ? nameOf(document.activeElement) : null;
    const open = [...section.querySelectorAll("details[open]")].map((one) => one.id);
    const scrolled = [...section.querySelectorAll(".scroll")].map((one) => one.scrollLeft);
    section.innerHTML = region.html;
    section.dataset.v = region.version;
    for (const one of section.querySelectorAll("details")) one.open = open.includes(one.id);
    section.querySelectorAll(".scroll").forEach((one, n) => { one.scrollLeft = scrolled[n] || 0; });
    if (focused) section.querySelector(focused)?.focus({ preventScroll: true });
    tellTimes(section);
  }
}

// ---------------------------------------------------------------- the connection

const link = find("#link");
const trouble = find("#trouble");
let stream = null;
let again = 0;
let delay = 1000;

function tell(state, text) {
  link.className = `link ${state}`;
  if (link.textContent !== text) link.textContent = text;
}

function open() {
  close();
  const opened = new EventSource(`${base}/live?at=${encodeURIComponent(at)}`);
  stream = opened;
  opened.onopen = () => { delay = 1000; tell("live", "live"); };
  opened.onmessage = (message) => {
    trouble.hidden = true;
    for (const region of JSON.parse(message.data)) waiting.set(region.name, region);
    renew();
  };
  opened.addEventListener("trouble", (message) => {
    trouble.textContent = JSON.parse(message.data).message;
    trouble.hidden = false;
  });
  opened.onerror = () => {
    if (stream !== opened) return;
    tell("lost", "lost, trying again");
    if (opened.readyState !== EventSource.CLOSED) return; // the browser tries by itself
    again = setTimeout(checkIn, delay);
    delay = Math.min(2 * delay, 10_000);
  };
}

function close() {
  clearTimeout(again);
  stream?.close();
  stream = null;
}

async function checkIn() {
  try {
    const answer = await fetch(location.href, { method: "HEAD", redirect: "manual" });
    if (answer.type === "opaqueredirect") return location.reload(); // the session is over
  } catch { /* nobody there yet */ }
  open();
}

function heed() {
  if (document.hidden) {
    close();
    tell("", "stopped while hidden");
  } else if (!stream) {
    open();
    tellTimes(document);
  }
}

// ---------------------------------------------------------------- acts

const dialog = find("#ask");
const said = find("#said");

function say(text) {
  said.textContent = text;
  said.hidden = false;
  setTimeout(() => { said.hidden = true; }, 6000);
}

async function problemOf(answer) {
  try {
    const problem = await answer.json();
    return [problem.detail, problem.hint].filter(Boolean).join("; ");
  } catch {
    return `the server answered ${answer.status}`;
  }
}

async function ask(button) {
  const { act, values } = button.dataset;
  try {
    const answer = await fetch(`${base}/ask?act=${encodeURIComponent(act)}&values=${encodeURIComponent(values)}`);
    if (!answer.ok) return say(await problemOf(answer));
    dialog.innerHTML = await answer.text();
  } catch {
    return say("The server cannot be reached.");
  }
  dialog.showModal();
  dialog.querySelector("input, select, textarea")?.focus();
}

async function act(form) {
  const given = Object.fromEntries(new FormData(form));
  const { why, ...fields } = given;
  const values = { ...JSON.parse(form.dataset.values), ...fields };
  const problem = form.querySelector("#ask-problem");
  const buttons = form.querySelectorAll("button");
  buttons.forEach((one) => { one.disabled = true; });
  problem.hidden = true;
  try {
    const answer = await fetch(`${base}/acts`, {
      method: "POST",
      headers: { "Content-Type": "application/json", "X-CSRF-Token": csrf },
      body: JSON.stringify({ act: form.dataset.act, values, why }),
    });
    if (answer.ok) {
      dialog.close();
      say((await answer.json()).done);
      if (!document.hidden) open();
      return;
    }
    problem.textContent = `Refused: ${await problemOf(answer)}`;
  } catch {
    problem.textContent = "The server cannot be reached. Whether it was done, the record says.";
  }
  problem.hidden = false;
  buttons.forEach((one) => { one.disabled = false; });
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("button[data-act]");
  if (button) ask(button);
  if (event.target.id === "ask-no") dialog.close();
});
dialog.addEventListener("close", () => dialog.replaceChildren());
dialog.addEventListener("submit", (event) => {
  event.preventDefault();
  act(event.target);
});
find("#out").addEventListener("click", async () => {
  await fetch(base.replace(/console$/, "logout"), { method: "POST", headers: { "X-CSRF-Token": csrf } });
  location.assign(`${base}/login`);
});

// ---------------------------------------------------------------- keys

const PLACES = { o: "", j: "/journals", p: "/projections", g: "/groups", w: "/work", a: "/acts" };
let go = 0;

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  if (event.target.closest("input, select, textarea")) return;
  if (Date.now() - go < 1500 && event.key in PLACES) return location.assign(base + PLACES[event.key]);
  go = event.key === "g" ? Date.now() : 0;
  if (event.key === "/") {
    event.preventDefault();
    find("#find").focus();
  } else if (event.key === "?") {
    find("#keys").showModal();
  }
});

// ---------------------------------------------------------------- begin

document.addEventListener("visibilitychange", heed);
document.addEventListener("selectionchange", () => { if (waiting.size) renew(); });
setInterval(() => { if (!document.hidden) tellTimes(document); }, 1000);
tellTimes(document);
heed();
