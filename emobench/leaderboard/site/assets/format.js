// Numbers as text. Fractions are stored and percent is shown; a minus is a minus, not a hyphen.

const ABSENT = "–";
const scale = (metric) => (metric.unit === "fraction" ? 100 : 1);
const metricTitle = (metric) => `${metric.name} ${metric.head}`.trim();
const plain = (value, decimals) => value.toFixed(decimals).replace("-", "−");

function signed(value, decimals) {
  const text = plain(value, decimals);
  const zero = Number(text.replace("−", "-")) === 0;
  return zero ? plain(0, decimals) : value > 0 ? `+${text}` : text;
}

function cell(value, metric, decimals) {
  if (!value) return ABSENT;
  const [mean, std] = value;
  const shown = std === null ? "" : ` ± ${spreadText(std * scale(metric), mean * scale(metric), decimals)}`;
  return plain(mean * scale(metric), decimals) + shown;
}

/** A spread with the mean's decimals: one that they would hide is below their last digit, and float rounding is none. */
function spreadText(std, mean, decimals) {
  const real = std > 1e-6 * Math.abs(mean);
  const text = plain(real ? std : 0, decimals);
  return Number(text) || !real ? text : `<${(10 ** -decimals).toFixed(decimals)}`;
}

function interval(low, high, metric, decimals) {
  if (low === null || high === null) return ABSENT;
  return `${plain(low * scale(metric), decimals)} to ${plain(high * scale(metric), decimals)}`;
}

/** An effect of a test: a difference in the metric's unit, or, of logarithms, the relative change. */
function effect(value, test, metric, decimals) {
  if (value === null) return ABSENT;
  if (test.log_scale) return `${signed(100 * Math.expm1(value), relativeDecimals(test))} %`;
  return signed(value * scale(metric), decimals);
}

/** As many decimals of percent as show two digits of the interval's half width, 1 to 6, as `emobench compare` does. */
function relativeDecimals({ low, high }) {
  const half = 50 * (Math.expm1(high ?? 0) - Math.expm1(low ?? 0));
  return half > 0 && Number.isFinite(half) ? Math.min(6, Math.max(1, 1 - Math.floor(Math.log10(half)))) : 1;
}

const pValue = (p) => (p === null ? ABSENT : p < 0.001 ? "< 0.001" : p.toFixed(3));
const whole = (value) => value.toLocaleString("en", { maximumFractionDigits: 0 });

function large(value) {
  if (value === null || value === undefined) return ABSENT;
  const steps = [
    [1e12, "T"],
    [1e9, "B"],
    [1e6, "M"],
    [1e3, "k"],
  ];
  const step = steps.find(([size]) => value >= size);
  return step ? `${Number((value / step[0]).toPrecision(3))}${step[1]}` : String(value);
}

const WORDS = {
  better: "better",
  worse: "worse",
  tied: "tied",
  undetermined: "undetermined",
};
const word = (test) => (test ? WORDS[test.verdict] || (test.why ? "describes" : "no verdict") : "not tested");

/** The family of tests that a p is adjusted within, with their number. */
function familyOf({ family, tests, p_holm }) {
  if (p_holm === null) return "";
  return tests === 1 ? `${family}, not adjusted` : `${family}, ${tests} tests (Holm)`;
}
