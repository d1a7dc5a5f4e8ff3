//! `REGEXP`, `REGEXP_EXTRACT`, `REGEXP_REPLACE` and their like as Flink has them. `\d`, `\w` and
//! `\s` are ASCII's, as in Java.

use std::cell::RefCell;

use arrow::array::Int32Array;
use regex::{CaptureLocations, Match, Regex};
use regex_automata::dfa::onepass::{self, DFA};
use regex_automata::util::{prefilter::Prefilter, primitives::NonMaxUsize, syntax};
use regex_automata::{Anchored, Input, MatchKind, Span};

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

/// Compiled patterns: mostly a batch has the same one in every row.
pub(super) struct Patterns<R, F> {
    compiled: Vec<(String, R)>,
    /// Index of the last requested expression.
    last: usize,
    compile: F,
}

impl<R, F: Fn(&str) -> DfResult<R>> Patterns<R, F> {
    pub(super) fn new(compile: F) -> Patterns<R, F> {
        Patterns { compiled: Vec::new(), last: 0, compile }
    }

    pub(super) fn get(&mut self, pattern: &str) -> DfResult<&mut R> {
        let is_it = |(text, _): &(String, R)| text == pattern;
        if !self.compiled.get(self.last).is_some_and(is_it) {
            self.last = match self.compiled.iter().position(is_it) {
                Some(known) => known,
                None => {
                    if self.compiled.len() >= PATTERNS_MAX {
                        self.compiled.clear();
                    }
                    let regex = (self.compile)(pattern)?;
                    self.compiled.push((pattern.to_string(), regex));
                    self.compiled.len() - 1
                }
            };
        }
        Ok(&mut self.compiled[self.last].1)
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

/// A compiled pattern for groups within its first match.
struct Groups {
    regex: Regex,
    places: CaptureLocations,
    begun: Option<Begun>,
}

/// A pattern whose matches begin with one of some texts. A place of such a text is found faster
/// than a match, and from there one pass finds the groups.
struct Begun {
    beginning: Prefilter,
    pattern: DFA,
    cache: onepass::Cache,
    slots: Vec<Option<NonMaxUsize>>,
}

/// Places from which a match is tried, before the whole pattern is looked for.
const BEGINNINGS_MAX: usize = 4;
/// Most bytes of the automaton of one pass.
const BEGUN_BYTES_MAX: usize = 1 << 20;

impl Groups {
    fn new(pattern: &str) -> DfResult<Groups> {
        let regex = compile(pattern)?;
        let (places, begun) = (regex.capture_locations(), Begun::new(&of_ascii(pattern)));
        Ok(Groups { regex, places, begun })
    }

    /// Start and end of a group, but for group 0, in the first match.
    fn place(&mut self, group: usize, text: &str) -> Option<(usize, usize)> {
        let from = match self.begun.as_mut().map(|begun| begun.place(group, text)) {
            Some(Ok(place)) => return place,
            Some(Err(from)) => from,
            None => 0,
        };
        self.regex.captures_read_at(&mut self.places, text, from)?;
        self.places.get(group)
    }
}

impl Begun {
    /// `None` for a pattern of another kind.
    fn new(pattern: &str) -> Option<Begun> {
        let parsed = syntax::parse(pattern).ok()?;
        let beginning = Prefilter::from_hir_prefix(MatchKind::LeftmostFirst, &parsed)?;
        let limited = DFA::config().size_limit(Some(BEGUN_BYTES_MAX));
        let pattern = DFA::builder().configure(limited).build(pattern).ok()?;
        Some(Begun { beginning, cache: pattern.create_cache(), pattern, slots: Vec::new() })
    }

    /// As [`Groups::place`]. An error is the place before which no match begins: the search has
    /// tried enough.
    fn place(&mut self, group: usize, text: &str) -> Result<Option<(usize, usize)>, usize> {
        let mut from = 0;
        let groups = self.pattern.get_nfa().group_info().all_group_len();
        self.slots.resize(2 * group.saturating_add(1).min(groups), None);
        for _ in 0..BEGINNINGS_MAX {
            let span = Span { start: from, end: text.len() };
            let Some(found) = self.beginning.find(text.as_bytes(), span) else { return Ok(None) };
            let input = Input::new(text).range(found.start..).anchored(Anchored::Yes);
            match self.pattern.try_search_slots(&mut self.cache, &input, &mut self.slots) {
                Ok(Some(_)) => {
                    let slot = |at: usize| Some(self.slots.get(at).copied()??.get());
                    return Ok(slot(2 * group).zip(slot(2 * group + 1)));
                }
                Ok(None) => from = found.start + 1,
                Err(_) => return Err(from),
            }
        }
        Err(from)
    }
}

type GroupPatterns = Patterns<Groups, fn(&str) -> DfResult<Groups>>;

thread_local! {
    /// Patterns of batches before, which are mostly those of the next batch.
    static GROUPS: RefCell<GroupPatterns> = RefCell::new(Patterns::new(Groups::new));
}

/// A group's first match; group 0 is the whole match. NULL if there is no match or no such group.
fn extract(args: &Arguments) -> DfResult<ArrayRef> {
    GROUPS.with_borrow_mut(|patterns| {
        args.parts(|row| {
            let (text, pattern) = (args.text(0, row)?, args.text(1, row)?);
            let group = if args.count() == 3 { args.number(2, row)? } else { 0 };
            let groups = patterns.get(pattern)?;
            let Ok(group) = usize::try_from(group) else { return Ok(None) };
            if group == 0 {
                return Ok(groups.regex.find(text).map(|found| found.as_str()));
            }
            Ok(groups.place(group, text).map(|(start, end)| &text[start..end]))
        })
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
    use super::{Groups, compile};

    /// Groups are those of the whole pattern's first match, wherever a match may begin.
    #[test]
    fn groups_of_patterns_that_begin_with_a_text() {
        let mut quick = 0;
        for pattern in [
            "(&|^)channel_id=([^&]*)",
            "a(b)?c",
            "ab(x|y)*z|ab(.)",
            r"key=(\w+)\b",
            "(ä|ö)=(é*)",
            "x(a|ab)(c|bcd)(d*)",
            "(?i)id=(.)",
            "(a)|b",
            "()",
            "q(uu)(vv)(ww)",
            "aa([^b]*)b",
        ] {
            let mut groups = Groups::new(pattern).unwrap();
            quick += usize::from(groups.begun.is_some());
            for text in [
                "channel_id=1&channel_id=2",
                "?xchannel_id=7&channel_id=8&",
                "&channel_id=",
                "channel_channel_id=3",
                "aaaaaaaaaaaaaaaaac abc",
                "ac ab abz abxyyx",
                "key= key=ü key=k_1.",
                "ö=ä=é ä=ééb",
                "x xa xab xabcd xacdd",
                "ID=1 Id=",
                "ququuuvvw quuvvww",
                "aa aa aa aa aa aa aab",
                "",
            ] {
                let captures = groups.regex.captures(text);
                for group in 1..5 {
                    let found = captures.as_ref().and_then(|captures| captures.get(group));
                    let place = groups.place(group, text);
                    let expected = found.map(|found| (found.start(), found.end()));
                    assert_eq!(place, expected, "{group} of {pattern} in {text}");
                }
            }
        }
        assert!(quick > 3, "{quick}");
    }

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
