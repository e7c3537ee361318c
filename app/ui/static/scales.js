// Colours and axes that plots share. Readers with any colour vision distinguish them.

import { svg } from "./dom.js";

/** Colours of groups, in turn. Source: Okabe and Ito 2008. */
export const GROUPS = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00"];

/** From little to much, equally for all colour vision. Source: cividis, Nuñez et al. 2018. */
const STOPS = [[0, 34, 78], [42, 63, 109], [87, 93, 109], [125, 124, 120], [165, 156, 116], [210, 192, 96], [254, 232, 56]];

/** Red, green and blue of a share of the scale, 0 to 1. */
export function heat(share) {
  const at = Math.min(Math.max(share, 0), 1) * (STOPS.length - 1);
  const low = Math.min(Math.floor(at), STOPS.length - 2);
  return STOPS[low].map((value, channel) => Math.round(value + (STOPS[low + 1][channel] - value) * (at - low)));
}

/** The scale as a legend: a bar with its ends and its middle. */
export function heatLegend({ x, y, width, low, high, title }) {
  const steps = 60;
  const bars = Array.from({ length: steps }, (_, place) => svg("rect", {
    x: x + (place * width) / steps, y, width: width / steps + 0.5, height: 10, fill: `rgb(${heat((place + 0.5) / steps)})`,
  }));
  const text = (share, anchor) => svg("text", { x: x + share * width, y: y + 26, "text-anchor": anchor },
    (low + share * (high - low)).toFixed(2));
  return svg("g", {}, ...bars, text(0, "start"), text(0.5, "middle"), text(1, "end"),
    svg("text", { x, y: y - 6 }, title));
}

/** Round values of an axis, about `count` of them. */
export function ticks(low, high, count) {
  const rough = (high - low) / count || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((each) => each * power).find((each) => each >= rough);
  const found = [];
  for (let value = Math.ceil(low / step - 1e-9) * step; value <= high + 1e-9; value += step) found.push(value);
  return found;
}
