"""A report in headless Chromium: no error on the console, every figure drawn, both colour schemes.

    report_browser.py REPORT_DIR OUT_DIR [CHROMIUM]      screenshots go to OUT_DIR
"""

import html
import json
import pathlib
import re
import subprocess
import sys

report, out = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
chromium = sys.argv[3] if len(sys.argv) > 3 else "chromium"
out.mkdir(parents=True, exist_ok=True)
failed = []

# The page itself has no script: a copy gets one that measures what is drawn.
MEASURE = """<script>
addEventListener("load", () => {
  const style = getComputedStyle(document.documentElement);
  const boxes = [...document.querySelectorAll("figure")].map(f => {
    const svg = f.querySelector("svg"), b = svg ? svg.getBoundingClientRect() : {width: 0, height: 0};
    const marks = svg ? [...svg.querySelectorAll("path,use,text")].filter(e => e.getBoundingClientRect().width > 0) : [];
    return [f.id, b.width, b.height, marks.length];
  });
  const colours = {};
  for (const name of ["page", "soft", "ink", "muted", "s1", "s2", "s3", "s4", "good", "bad"])
    colours[name] = style.getPropertyValue("--" + name).trim();
  document.documentElement.dataset.measured = JSON.stringify({
    boxes, colours, background: getComputedStyle(document.body).backgroundColor,
    wide: document.documentElement.scrollWidth - innerWidth});
});
</script>"""


def browse(page, *options):
    command = [chromium, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--enable-logging=stderr",
               "--user-data-dir=%s" % (out / "profile"), *options, page.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180)
    for line in done.stderr.splitlines():
        if "CONSOLE" in line:
            failed.append("console: " + line)
    if done.returncode != 0:
        failed.append("chromium: exit code %d: %s" % (done.returncode, done.stderr[-500:]))
    return done.stdout


def luminance(colour):
    colour = colour.lstrip("#")
    if len(colour) == 3:
        colour = "".join(c + c for c in colour)
    parts = [int(colour[i:i + 2], 16) / 255 for i in (0, 2, 4)]
    parts = [p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]


def contrast(a, b):
    a, b = sorted((luminance(a), luminance(b)))
    return (b + 0.05) / (a + 0.05)


def check_scheme(name, scheme, width):
    copy = report / "measured.html" # beside the page: its links stay valid
    copy.write_text((report / "report.html").read_text(encoding="utf-8").replace("</body>", MEASURE + "</body>"),
                    encoding="utf-8")
    dom = browse(copy, "--dump-dom", "--window-size=%d,1000" % width, "--blink-settings=preferredColorScheme=%d" % scheme)
    copy.unlink()
    found = re.search(r'data-measured="([^"]*)"', dom)
    if not found:
        failed.append("%s: nothing was measured" % name)
        return
    m = json.loads(html.unescape(found[1]))
    if not m["boxes"]:
        failed.append("no figures")
    for figure, w, h, marks in m["boxes"]:
        if w < 200 or h < 80 or marks < 10:
            failed.append("%s: %s is %g x %g with %d marks" % (name, figure, w, h, marks))
    if m["wide"] > 0:
        failed.append("%s: the page is %g pixels wider than the window" % (name, m["wide"]))
    dark = luminance("%02x%02x%02x" % tuple(map(int, re.findall(r"\d+", m["background"])[:3]))) < 0.2
    if dark != (name == "dark"):
        failed.append("%s: background %s" % (name, m["background"]))
    c = m["colours"]
    least = {"ink": 7, "muted": 4.5, "good": 4.5, "bad": 4.5, "s1": 4.5, "s2": 3, "s3": 3, "s4": 3}
    for colour, ratio in least.items():
        for ground in ("page", "soft"):
            if contrast(c[colour], c[ground]) < ratio:
                failed.append("%s: contrast of %s on %s is %.2f" % (name, colour, ground, contrast(c[colour], c[ground])))
    print("%s at %d pixels: %d figures drawn" % (name, width, len(m["boxes"])))


def screenshot(name, *options):
    path = out / (name + ".png")
    browse(report / "report.html", "--screenshot=%s" % path, *options)
    if not path.exists() or path.stat().st_size < 20000:
        failed.append("%s: the screenshot is empty" % name)


check_scheme("light", 1, 1400)
check_scheme("light", 1, 420)
check_scheme("dark", 0, 1400)
screenshot("light", "--window-size=1400,1000", "--blink-settings=preferredColorScheme=1")
screenshot("dark", "--window-size=1400,1000", "--blink-settings=preferredColorScheme=0")
screenshot("narrow", "--window-size=500,1400", "--blink-settings=preferredColorScheme=1")
pdf = out / "report.pdf"
browse(report / "report.html", "--print-to-pdf=%s" % pdf, "--no-pdf-header-footer")
if not pdf.exists() or pdf.stat().st_size < 20000:
    failed.append("printing gives nothing")
for message in failed:
    print("FAILED:", message)
sys.exit(1 if failed else 0)
