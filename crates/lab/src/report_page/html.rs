//! The page's texts and tables, as HTML. The page is also well-formed XML, so that tests can parse
//! it.

use std::fmt::Display;

use millstream::harmless;

/// A text as it has to stand in the page, between tags or in an attribute's quotes.
pub(super) fn escape(text: &dyn Display) -> String {
    let mut out = String::new();
    for c in harmless(&text.to_string()).chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // No characters, says XML.
            '\u{fffe}' | '\u{ffff}' => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

/// `<name>text</name>`.
pub(super) fn element(name: &str, text: &dyn Display) -> String {
    format!("<{name}>{}</{name}>\n", escape(text))
}

/// A table; cells that look like numbers stand to the right.
pub(super) fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let mut out = String::from("<table>\n<tr>");
    for name in head {
        out.push_str(&format!("<th>{}</th>", escape(name)));
    }
    out.push_str("</tr>\n");
    for row in rows {
        out.push_str("<tr>");
        for cell in row {
            let class = match cell.starts_with(|c: char| c.is_ascii_digit()) {
                true => " class=\"number\"",
                false => "",
            };
            out.push_str(&format!("<td{class}>{}</td>", escape(cell)));
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</table>\n");
    out
}

/// The whole page around its body. The policy forbids whatever is not in the page itself.
pub(super) fn page(body: &str) -> String {
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src \
         'unsafe-inline'\"/>\n<title>Millstream: measurements</title>\n<style>\n{STYLE}</style>\n\
         </head>\n<body>\n{body}</body>\n</html>\n"
    )
}

const STYLE: &str = "\
body { font: 15px/1.4 sans-serif; color: #1c1c1c; background: #fff;
  max-width: 60em; margin: 2em auto; padding: 0 1em; }
h2 { border-top: 2px solid #1c1c1c; padding-top: .5em; margin-top: 2em; }
svg { display: block; margin: 1em 0; max-width: 100%; height: auto; }
svg text { font: 12px sans-serif; fill: #1c1c1c; }
svg .name { font-weight: bold; font-size: 14px; }
svg .grid { stroke: #d8d8d8; }
svg .axis { stroke: #1c1c1c; }
svg .whisker { stroke: #8c8c8c; stroke-width: 1.5; }
svg .curve { fill: none; stroke-width: 2; }
table { border-collapse: collapse; margin: 1em 0; font-size: 13px; }
th, td { border-bottom: 1px solid #d8d8d8; padding: .2em .6em; text-align: left;
  vertical-align: top; }
td.number { text-align: right; white-space: nowrap; }
.warning { border-left: 4px solid #c0392b; padding-left: .8em; }
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_and_control_characters_do_not_get_through() {
        let text = escape(&"<script>a & \"b\" 'c'</script>\u{1b}[31m\u{202e}\u{0}\u{ffff}");
        assert!(text.starts_with("&lt;script&gt;a &amp; &quot;b&quot; &#39;c&#39;&lt;/script&gt;"));
        assert!(
            text.chars().all(|c| !c.is_control() && !"<>\"'\u{202e}\u{ffff}".contains(c)),
            "{text}"
        );
    }
}
