/* Hostile text in pages, tables, scripts of figures and figures. */
#include "wanamaker/report/figure.h"
#include "wanamaker/report/html.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static char *text;
static size_t bytes;

static FILE *begin(void) {
  FILE *f = open_memstream(&text, &bytes);
  assert_non_null(f);
  return f;
}

static void expect(FILE *f, const char *expected) {
  fclose(f);
  assert_string_equal(text, expected);
  free(text);
}

static void test_text(void **state) {
  (void)state;
  FILE *f = begin();
  wm_html_text(f, "<script>alert(\"1\" & '2')</script>");
  expect(f, "&lt;script&gt;alert(&quot;1&quot; &amp; &#39;2&#39;)&lt;/script&gt;");
  f = begin();
  wm_html_text(f, "a\x01"
                  "b\x7f\xc2\x85" /* U+0085 */
                  "\xff\xc3(\n\tü");
  expect(f, "a\xef\xbf\xbd"
            "b\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd(\n\tü");
  f = begin(); /* a part of a character is one; an overlong one and a surrogate are as many as bytes
                */
  wm_html_text(f, "\xe2\x82,\xf0\x9f\x98.\xe0\x80-\xed\xa0+\xe2");
  expect(f, "\xef\xbf\xbd,\xef\xbf\xbd.\xef\xbf\xbd\xef\xbf\xbd-"
            "\xef\xbf\xbd\xef\xbf\xbd+\xef\xbf\xbd");
}

static void test_number(void **state) {
  (void)state;
  FILE *f = begin();
  wm_html_number(f, "a\"b", 0.1 + 0.2, 2);
  expect(f, "<data class=\"n\" data-n=\"a&quot;b\" value=\"0.30000000000000004\">0.30</data>");
  f = begin();
  wm_html_number(f, "x", NAN, 2);
  expect(f, "<data class=\"n\" data-n=\"x\" value=\"\">–</data>");
}

static void test_table(void **state) {
  (void)state;
  const wm_column_t columns[] = {{"<b>", "%", WM_ALIGN_LEFT, 0}, {"n", NULL, WM_ALIGN_RIGHT, 1}};
  wm_table_t *t;
  wm_error_t err = {0};
  assert_int_equal(wm_table_create(columns, 2, &t, &err), WM_OK);
  wm_table_text(t, "</td>");
  wm_table_float(t, -0.25);
  wm_table_text(t, "not tested");
  wm_table_float(t, NAN);
  FILE *f = begin();
  assert_int_equal(wm_table_html(t, "i\"d", "a & b", 1, f, &err), WM_OK);
  expect(f,
         "<div class=\"scroll\" tabindex=\"0\"><table id=\"i&quot;d\">\n"
         "<caption>a &amp; b</caption>\n"
         "<thead><tr><th scope=\"col\" class=\"t\">&lt;b&gt; <span class=\"unit\">%</span></th>"
         "<th scope=\"col\">n</th></tr></thead>\n<tbody>\n"
         "<tr><th scope=\"row\" class=\"t\">&lt;/td&gt;</th><td data-v=\"-0.25\">-0.2</td></tr>\n"
         "<tr><th scope=\"row\" class=\"t\" data-t=\"not tested\">not tested</th>"
         "<td data-v=\"\">–</td></tr>\n"
         "</tbody></table></div>\n");
  wm_table_free(t);
}

static void test_label(void **state) {
  (void)state;
  FILE *f = begin();
  wm_figure_label(f, "it's `date`\n$(x)\xff");
  expect(f, "'it''s \xef\xbf\xbd"
            "date\xef\xbf\xbd\xef\xbf\xbd$(x)\xef\xbf\xbd'");
  f = begin();
  wm_figure_number(f, INFINITY);
  wm_figure_number(f, NAN);
  wm_figure_number(f, -1.5);
  expect(f, " NaN NaN -1.5");
}

/* Ids get the figure's name, colours those of the page, and groups without content go. */
static void test_adopt(void **state) {
  (void)state;
  static const char svg[] =
      "<?xml version=\"1.0\"?>\n<svg \n viewBox=\"0 0 9 9\"\n "
      "xmlns=\"x\"\n>\n<title>Gnuplot</title>\n"
      "<g id=\"gnuplot_canvas\"><circle id='gpDot'/>\n<g color=\"black\">\n</g>\n"
      "<use xlink:href='#gpDot' color='rgb(  1,   1,   4)'/><g fill=\"rgb(1,1,1)\">x</g>\n"
      "<g id=\"gnuplot_plot_12\" ><path stroke='gray'/></g></g>\n</svg>\n";
  char *out = NULL;
  wm_error_t err = {0};
  assert_int_equal(wm_figure_adopt(svg, "f", &out, &err), WM_OK);
  assert_string_equal(
      out, "<svg class=\"plot\" role=\"img\" aria-labelledby=\"cap-f\" viewBox=\"0 0 9 9\" "
           "xmlns=\"http://www.w3.org/2000/svg\">\n"
           "<g id=\"f-gnuplot_canvas\"><circle id='f-gpDot'/>\n"
           "<use href='#f-gpDot' color='var(--s1)'/><g fill=\"var(--ink)\">x</g>\n"
           "<g  ><path stroke='var(--grid)'/></g></g>\n</svg>\n");
  free(out);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_text), cmocka_unit_test(test_number),
                                     cmocka_unit_test(test_table), cmocka_unit_test(test_label),
                                     cmocka_unit_test(test_adopt)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
