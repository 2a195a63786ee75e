"use strict";
// Numbers and places: readable figures, round ticks, elements. Text from a run becomes text nodes only, never markup.

const SVG = "http://www.w3.org/2000/svg";

function add(parent, tag, attributes = {}, text = null) {
  const drawn = tag === "svg" || parent instanceof SVGElement;
  const element = drawn ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text !== null) element.textContent = text;
  return parent.appendChild(element);
}

function number(value) {
  const size = Math.abs(value);
  if (size >= 1000) return value.toLocaleString("en-US", { maximumFractionDigits: size < 10000 ? 1 : 0 });
  return size > 0 && size < 1e-4 ? value.toExponential(2) : String(Number(value.toPrecision(4)));
}

function inUnits(value, factor, units) {
  let at = 0;
  for (; at < units.length - 1 && value >= factor; at += 1) value /= factor;
  return `${Number(value.toPrecision(3))} ${units[at]}`;
}

// What a reader would say: 81.5 ms, 1:06:40, 4 MiB, 97.2 %.
function readable(value, unit) {
  if (value === null || value === undefined) return "–";
  if (unit === "B") return inUnits(value, 1024, ["B", "KiB", "MiB", "GiB", "TiB"]);
  if (unit === "s" && value > 0 && value < 1) return inUnits(value * 1e6, 1000, ["µs", "ms", "s"]);
  if (unit === "s" && value >= 600) {
    const two = (part) => String(Math.floor(part) % 60).padStart(2, "0");
    return `${Math.floor(value / 3600)}:${two(value / 60)}:${two(value)}`;
  }
  return unit ? `${number(value)} ${unit}` : number(value);
}

function roundStep(low, high, count, counted) {
  const raw = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = power * ((counted ? [1, 2, 5] : [1, 2, 2.5, 5]).find((factor) => factor * power >= raw * 0.999) || 10);
  return counted ? Math.max(1, step) : step;
}

// Counted beforehand: close to 2^53, where 1 more is no more, a loop until `high` would never end.
const MOST_TICKS = 50;

function multiples(low, high, step) {
  const first = Math.ceil(low / step - 1e-9);
  const count = Math.min(MOST_TICKS, Math.max(0, Math.floor(high / step + 1e-6) - first + 1)) || 0;
  return [...new Set(Array.from({ length: count }, (_, at) => (first + at) * step))];
}

// 1, 2, 5, 10, 20 ... between two numbers: for logarithmic axes on which powers of ten alone would be too few.
function ofDecades(low, high) {
  const powers = multiples(Math.floor(Math.log10(low)), Math.ceil(Math.log10(high)), 1);
  const every = powers.flatMap((power) => [1, 2, 5].map((digit) => digit * 10 ** power));
  return every.filter((value) => value >= low * 0.999 && value <= high * 1.001);
}

// value -> place between from and to, and back; ticks are round numbers. whole: the axis ends at ticks, or at 0.
function scale(axis, values, [from, to], count, whole = false) {
  const usable = values.filter((value) => value !== null && (!axis.log || value > 0));
  let low = usable.reduce((a, b) => Math.min(a, b), Infinity);
  let high = usable.reduce((a, b) => Math.max(a, b), -Infinity);
  if (low > high) [low, high] = [1, 10];
  const margin = Math.max(0.5, Math.abs(low) * 1e-12);
  if (low === high) [low, high] = axis.log ? [low / 2, high * 2] : [low - margin, high + margin];
  const base = axis.unit === "B" || usable.every(Number.isInteger) ? 2 : 10;  // bytes and numbers of nodes double
  const flat = axis.log ? (value) => Math.log(value) / Math.log(base) : (value) => value;
  const back = axis.log ? (value) => base ** value : (value) => value;
  let [a, b] = [flat(low), flat(high)];
  if (whole && !axis.log && low > 0 && low < 0.6 * high) a = 0;
  const step = axis.log ? Math.max(1, Math.ceil((b - a) / count)) : roundStep(a, b, count, axis.counted);
  if (whole && !axis.log) [a, b] = [Math.floor(a / step + 1e-9) * step, Math.ceil(b / step - 1e-9) * step];
  if (axis.unit === "%" && high <= 100) b = Math.min(b, 100);
  return {
    place: (value) => from + ((flat(value) - a) / (b - a)) * (to - from),
    back: (spot) => back(a + ((spot - from) / (to - from)) * (b - a)),
    ticks: axis.log && base === 10 && b - a < 2 ? ofDecades(back(a), back(b)) : multiples(a, b, step).map(back),
  };
}

// Seconds and bytes carry their unit at each tick (81.5 ms, 4 MiB), others in the title.
const inTicks = (axis) => axis.unit === "s" || axis.unit === "B";
const titled = (axis) => (axis.unit && !inTicks(axis) ? `${axis.label} (${axis.unit})` : axis.label);
const shortNumber = (value) => (Math.abs(value) >= 1e6 ? `${number(value / 1e6)}M` : number(value));
const tickText = (axis, value) => (inTicks(axis) ? readable(value, axis.unit) : shortNumber(value));
