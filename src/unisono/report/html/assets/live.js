// The live page: asks for the content again and puts in place what has changed; what the reader has chosen stays.
// Stands before page.js, which draws: here every section is noted as it came.

const PAUSE_MS = 1000;
const sources = new Map([...document.querySelectorAll("main > section")].map((part) => [part.id, part.outerHTML]));
let version = "";
let heard = new Date();
let over = false;

function replaceSections(html) {
  const main = document.querySelector("main");
  const parts = [...new DOMParser().parseFromString(html, "text/html").querySelectorAll("section")];
  const ids = new Set(parts.map((part) => part.id));
  for (const old of [...main.children]) if (!ids.has(old.id)) old.remove();
  let complete = true;
  parts.forEach((part, at) => {
    const old = document.getElementById(part.id);
    const source = part.outerHTML;
    if (old && sources.get(part.id) === source) return;
    if (old && old.querySelector(".tip:not([hidden])")) {  // somebody is reading there: the next time
      complete = false;
      return;
    }
    sources.set(part.id, source);
    const made = document.importNode(part, true);
    if (old) {
      const open = new Set([...old.querySelectorAll("details[open] > summary")].map((line) => line.textContent));
      made.querySelectorAll("details").forEach((fold) => { fold.open = open.has(fold.firstChild.textContent); });
      old.replaceWith(made);
    } else main.insertBefore(made, main.children[at] || null);
    drawAll(made);
  });
  const nav = document.querySelector("nav");
  nav.textContent = "";
  for (const part of main.children) add(nav, "a", { href: `#${part.id}` }, part.querySelector("h2").textContent);
  return complete;
}

function tell(text) {
  const line = document.getElementById("live");
  if (line.textContent !== text) line.textContent = text;
}

async function look() {
  try {
    const answer = await fetch(`content?seen=${version}`, { cache: "no-store" });
    if (!answer.ok) throw new Error(answer.status);
    const news = await answer.json();
    if (news.html === null || replaceSections(news.html)) version = news.version;
    heard = new Date();
    const age = `last written ${readable(Math.round(news.age_s), "s")} ago`;
    over = news.ended;
    tell(over ? "Live: the run has ended" : `Live: ${age}`);
  } catch {
    if (!over) tell(`unisono watch has ended: this is what was there at ${heard.toLocaleTimeString()}`);
  }
  setTimeout(look, PAUSE_MS);
}

setTimeout(look, PAUSE_MS);
