//! `REGEXP`, `REGEXP_EXTRACT`, `REGEXP_REPLACE` and their like as Flink has them. `\d`, `\w` and
//! `\s` are ASCII's, as in Java.

use arrow::array::Int32Array;
use regex::{CaptureLocations, Match, Regex};

use super::rows::{Arguments, NUMBER, TEXT, function, push};
use crate::expr::located::within_mark;
use crate::syntax::prelude::*;

/// Compiled patterns that are kept at a time: each may take 10 MB.
const PATTERNS_MAX: usize = 16;

/// All of them.
pub(super) fn functions() -> Vec<ScalarUDF> {
    let two: &[DataType] = &[TEXT, TEXT];
    let three: &[DataType] = &[TEXT, TEXT, NUMBER];
    vec![
        function("regexp_like", &["regexp"], &[two], DataType::Boolean, like),
        function("regexp_extract", &[], &[two, three], TEXT, extract),
        function("regexp_substr", &[], &[two], TEXT, extract),
        function("regexp_count", &[], &[two], DataType::Int32, count),
        function("regexp_instr", &[], &[two], DataType::Int32, instr),
        function("regexp_replace", &[], &[&[TEXT, TEXT, TEXT]], TEXT, replace),
    ]
}

/// Compiled patterns of one batch: mostly it is the same in every row.
pub(super) struct Patterns<F> {
    compiled: Vec<(String, Regex)>,
    /// Index of the last requested expression.
    last: usize,
    /// Number of dropped patterns.
    before: usize,
    compile: F,
}

impl<F: Fn(&str) -> DfResult<Regex>> Patterns<F> {
    pub(super) fn new(compile: F) -> Patterns<F> {
        Patterns { compiled: Vec::new(), last: 0, before: 0, compile }
    }

    pub(super) fn get(&mut self, pattern: &str) -> DfResult<&Regex> {
        Ok(self.numbered(pattern)?.1)
    }

    /// With the number of patterns compiled before it.
    fn numbered(&mut self, pattern: &str) -> DfResult<(usize, &Regex)> {
        let is_it = |(text, _): &(String, Regex)| text == pattern;
        if !self.compiled.get(self.last).is_some_and(is_it) {
            self.last = match self.compiled.iter().position(is_it) {
                Some(known) => known,
                None => {
                    if self.compiled.len() >= PATTERNS_MAX {
                        self.before += self.compiled.len();
                        self.compiled.clear();
                    }
                    let regex = (self.compile)(pattern)?;
                    self.compiled.push((pattern.to_string(), regex));
                    self.compiled.len() - 1
                }
            };
        }
        Ok((self.before + self.last, &self.compiled[self.last].1))
    }
}

/// Refuses constant patterns that are none before a query runs.
pub(super) fn check_patterns(expr: &Expr) -> DfResult<()> {
    expr.each_node(|e| {
        let Expr::ScalarFunction(call) = e else { return Ok(TreeNodeRecursion::Continue) };
        let patterns = match call.name() {
            "str_to_map" => 1..3,
            name if name.starts_with("regexp_") => 1..2,
            _ => 0..0,
        };
        for pattern in call.args.iter().take(patterns.end).skip(patterns.start) {
            if let Expr::Literal(value, _) = within_mark(pattern).unwrap_or(pattern)
                && let Some(Some(pattern)) = value.try_as_str()
            {
                compile(pattern)?;
            }
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(())
}

pub(super) fn compile(pattern: &str) -> DfResult<Regex> {
    let compiled = Regex::new(&of_ascii(pattern));
    // What is wrong shows the pattern as it is written.
    compiled.or_else(|e| Regex::new(pattern).and(Err(e))).map_err(|e| exec_datafusion_err!("{e}"))
}

/// A pattern whose `\d`, `\w` and `\s` are ASCII's, also within brackets.
fn of_ascii(pattern: &str) -> String {
    let (mut written, mut chars) = (String::with_capacity(pattern.len()), pattern.chars());
    while let Some(c) = chars.next() {
        if c != '\\' {
            written.push(c);
            continue;
        }
        match chars.next() {
            Some('d') => written.push_str("[0-9]"),
            Some('D') => written.push_str("[^0-9]"),
            Some('w') => written.push_str("[0-9A-Za-z_]"),
            Some('W') => written.push_str("[^0-9A-Za-z_]"),
            Some('s') => written.push_str(r"[\t\n\x0B\f\r\x20]"),
            Some('S') => written.push_str(r"[^\t\n\x0B\f\r\x20]"),
            next => written.extend(std::iter::once('\\').chain(next)),
        }
    }
    written
}

/// The matches, as Java finds them: an empty match may stand right behind the match before.
fn matches<'t>(regex: &Regex, text: &'t str) -> impl Iterator<Item = Match<'t>> {
    let mut from = Some(0);
    std::iter::from_fn(move || {
        let found = regex.find_at(text, from?)?;
        let end = found.end();
        from = match found.is_empty() {
            true => text[end..].chars().next().map(|c| end + c.len_utf8()),
            false => Some(end),
        };
        Some(found)
    })
}

/// The parts between matches, up to so many, as Java splits: an empty match at the start makes
/// none.
pub(super) fn parts<'t>(regex: &Regex, text: &'t str, most: usize) -> Vec<&'t str> {
    let separators = matches(regex, text).filter(|found| found.end() > 0);
    let (mut parts, mut done) = (Vec::new(), 0);
    for separator in separators.take(most - 1) {
        parts.push(&text[done..separator.start()]);
        done = separator.end();
    }
    parts.push(&text[done..]);
    parts
}

/// Whether a part of the text matches; an empty pattern matches nothing.
fn like(args: &Arguments) -> DfResult<ArrayRef> {
    let mut patterns = Patterns::new(compile);
    let found = args.rows(|row| {
        let (text, pattern) = (args.text(0, row)?, args.text(1, row)?);
        Ok(Some(!pattern.is_empty() && patterns.get(pattern)?.is_match(text)))
    });
    Ok(Arc::new(found.collect::<DfResult<BooleanArray>>()?))
}

/// A group's first match; group 0 is the whole match. NULL if there is no match or no such group.
fn extract(args: &Arguments) -> DfResult<ArrayRef> {
    let mut patterns = Patterns::new(compile);
    let mut places: Option<(usize, CaptureLocations)> = None;
    args.parts(|row| {
        let (text, pattern) = (args.text(0, row)?, args.text(1, row)?);
        let group = if args.count() == 3 { args.number(2, row)? } else { 0 };
        let (number, regex) = patterns.numbered(pattern)?;
        let Ok(group) = usize::try_from(group) else { return Ok(None) };
        if group == 0 {
            return Ok(regex.find(text).map(|found| found.as_str()));
        }
        let places = match &mut places {
            Some((of, places)) if *of == number => places,
            other => &mut other.insert((number, regex.capture_locations())).1,
        };
        let found = regex.captures_read(places, text);
        Ok(found.and_then(|_| places.get(group)).map(|(start, end)| &text[start..end]))
    })
}

/// How many matches there are, which do not overlap.
fn count(args: &Arguments) -> DfResult<ArrayRef> {
    let mut patterns = Patterns::new(compile);
    let counts = args.rows(|row| {
        let (text, pattern) = (args.text(0, row)?, args.text(1, row)?);
        Ok(i32::try_from(matches(patterns.get(pattern)?, text).count()).ok())
    });
    Ok(Arc::new(counts.collect::<DfResult<Int32Array>>()?))
}

/// The character, counted from 1, at which the first match begins; 0 if there is none.
fn instr(args: &Arguments) -> DfResult<ArrayRef> {
    let mut patterns = Patterns::new(compile);
    let places = args.rows(|row| {
        let (text, pattern) = (args.text(0, row)?, args.text(1, row)?);
        let found = patterns.get(pattern)?.find(text);
        let place = found.map_or(0, |found| text[..found.start()].chars().count() + 1);
        Ok(i32::try_from(place).ok())
    });
    Ok(Arc::new(places.collect::<DfResult<Int32Array>>()?))
}

/// Replaces every match by a text, in which `$` and `\` mean nothing.
fn replace(args: &Arguments) -> DfResult<ArrayRef> {
    let mut patterns = Patterns::new(compile);
    args.texts(|row, out| {
        let (text, pattern, by) = (args.text(0, row)?, args.text(1, row)?, args.text(2, row)?);
        let mut done = 0;
        for found in matches(patterns.get(pattern)?, text) {
            push(out, &text[done..found.start()]);
            push(out, by);
            done = found.end();
        }
        push(out, &text[done..]);
        Ok(Some(()))
    })
}

#[cfg(test)]
mod tests {
    use super::compile;

    /// As in Java, where these are ASCII's unless UNICODE_CHARACTER_CLASS is asked for.
    #[test]
    fn classes_are_of_ascii() {
        for (pattern, text, replaced) in [
            (r"\d", "١٢3", "١٢#"),
            (r"\D", "١2", "#2"),
            (r"\w", "é_a", "é##"),
            (r"\W", "é_a", "#_a"),
            (r"\s", "a\u{a0}b c\u{b}", "a\u{a0}b#c#"),
            (r"\S", "\u{a0} a", "# #"),
            (r"[\dx-]", "1x-٣", "###٣"),
            (r"[^\w.]", "a.é ", "a.##"),
            (r"\\d", r"\d1", "#1"),
            (r"(?x) \s # blanks", "a b", "a#b"),
        ] {
            let regex = compile(pattern).unwrap();
            assert_eq!(regex.replace_all(text, "#"), replaced, "{pattern}");
        }
        let error = compile(r"\d(").unwrap_err().to_string();
        assert!(error.contains(r"\d("), "{error}");
    }
}
