//! `SIMILAR TO` of the SQL standard. A pattern matches the whole string; it has `%` and `_` as in
//! LIKE, alternatives, repetitions, groups and sets of characters. DataFusion takes the pattern for
//! a regular expression that may match a part of the string.

use std::{iter::Peekable, str::Chars};

use datafusion_expr::expr::Like;
use regex::Regex;

use super::regexps::Patterns;
use crate::expr::located::within_mark;
use crate::expr::udf::{call_of, called, called_in};
use crate::syntax::prelude::*;

/// Special characters of patterns.
const SPECIAL: &str = "[]()|^-+*_%?{}";

/// Sets that have a name, as in Calcite, of ASCII characters; names may be in small letters.
const CLASSES: [(&str, &str); 7] = [
    ("ALPHA", "[:alpha:]"),
    ("UPPER", "[:upper:]"),
    ("LOWER", "[:lower:]"),
    ("DIGIT", "[:digit:]"),
    ("ALNUM", "[:alnum:]"),
    ("SPACE", " "),
    ("WHITESPACE", "[:space:]"),
];

/// Replaces DataFusion's SIMILAR TO in `expr`; a constant pattern that is none is an error.
pub(crate) fn match_similar(expr: Expr) -> DfResult<Expr> {
    let matched = expr.changed_up(|e| {
        let Expr::SimilarTo(Like { negated, expr, pattern, escape_char, .. }) = e else {
            return Ok(Transformed::no(e));
        };
        if let Expr::Literal(value, _) = within_mark(&pattern).unwrap_or(&pattern)
            && let Some(Some(text)) = value.try_as_str()
        {
            to_regex(text, escape_char)?;
        }
        let matched = call_of(Similar { escape: escape_char }, vec![*expr, *pattern]);
        Ok(Transformed::yes(if negated { Expr::Not(Box::new(matched)) } else { matched }))
    })?;
    Ok(matched.data)
}

/// Text, pattern and escape character of a SIMILAR TO comparison; `None` for another `expr`.
pub(crate) fn similar_parts(expr: &Expr) -> Option<(&Expr, &Expr, Option<char>)> {
    let (Similar { escape }, [text, pattern]) = called_in(expr)? else { return None };
    Some((text, pattern, *escape))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Similar {
    escape: Option<char>,
}

impl ScalarUDFImpl for Similar {
    called!("similar_to", TWO, DataType::Boolean);

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        let arrays = ColumnarValue::values_to_arrays(&args.args)?;
        let [texts, patterns] = &arrays[..] else { return exec_err!("SIMILAR TO has two sides") };
        let (texts, patterns) = (cast(texts, &DataType::Utf8)?, cast(patterns, &DataType::Utf8)?);
        let (texts, patterns) = (texts.as_string::<i32>(), patterns.as_string::<i32>());
        let mut compiled = Patterns::new(|pattern| to_regex(pattern, self.escape));
        let matched = (0..texts.len()).map(|row| {
            if texts.is_null(row) || patterns.is_null(row) {
                return Ok(None);
            }
            Ok(Some(compiled.get(patterns.value(row))?.is_match(texts.value(row))))
        });
        let matched: BooleanArray = matched.collect::<DfResult<_>>()?;
        Ok(ColumnarValue::Array(std::sync::Arc::new(matched)))
    }
}

/// The regular expression of whole texts that a pattern stands for.
fn to_regex(pattern: &str, escape: Option<char>) -> DfResult<Regex> {
    let refused = |why: String| not_similar(pattern, &why);
    let regex = Translator::new(pattern, escape).translate().map_err(refused)?;
    Regex::new(&format!(r"(?s)\A(?:{regex})\z"))
        .map_err(|_| not_similar(pattern, "it repeats too much, or is nested too deeply"))
}

fn not_similar(pattern: &str, why: &str) -> DataFusionError {
    exec_datafusion_err!("'{pattern}' is no pattern of SIMILAR TO: {why}")
}

/// From a pattern to a regular expression, character by character.
struct Translator<'a> {
    rest: Peekable<Chars<'a>>,
    escape: Option<char>,
    regex: String,
    /// Brackets that are open.
    open: usize,
    /// Whether what comes before may be repeated.
    repeatable: bool,
}

type Translated<T> = Result<T, String>;

impl Translator<'_> {
    fn new(pattern: &str, escape: Option<char>) -> Translator<'_> {
        let rest = pattern.chars().peekable();
        Translator { rest, escape, regex: String::new(), open: 0, repeatable: false }
    }

    fn translate(mut self) -> Translated<String> {
        while let Some(c) = self.rest.next() {
            match c {
                c if Some(c) == self.escape => {
                    let literal = self.escaped()?;
                    self.element(&regex::escape(literal.encode_utf8(&mut [0; 4])));
                }
                '%' => self.element("(?:.*)"),
                '_' => self.element("."),
                '(' => {
                    self.open += 1;
                    self.begin("(?:");
                }
                ')' => {
                    self.open = self.open.checked_sub(1).ok_or("there is no ( for its )")?;
                    self.element(")");
                }
                '|' => self.begin("|"),
                '*' | '+' | '?' => self.repeat(c, &c.to_string())?,
                '{' => {
                    let bounds = self.bounds()?;
                    self.repeat('{', &bounds)?;
                }
                '[' => {
                    let set = self.set()?;
                    self.element(&set);
                }
                ']' | '}' => return Err(format!("nothing opens before its {c}")),
                c => self.element(&regex::escape(c.encode_utf8(&mut [0; 4]))),
            }
        }
        match self.open {
            0 => Ok(self.regex),
            _ => Err("a ( is never closed".into()),
        }
    }

    fn element(&mut self, regex: &str) {
        self.regex.push_str(regex);
        self.repeatable = true;
    }

    fn begin(&mut self, regex: &str) {
        self.regex.push_str(regex);
        self.repeatable = false;
    }

    fn repeat(&mut self, sign: char, regex: &str) -> Translated<()> {
        if !self.repeatable {
            return Err(format!("there is nothing before {sign} to repeat"));
        }
        self.begin(regex);
        Ok(())
    }

    /// The character after the escape character.
    fn escaped(&mut self) -> Translated<char> {
        match self.rest.next() {
            Some(c) if SPECIAL.contains(c) || Some(c) == self.escape => Ok(c),
            Some(c) => Err(format!("{c} needs no escape")),
            None => Err("nothing follows the character that escapes".into()),
        }
    }

    /// `n}`, `n,}` or `n,m}`.
    fn bounds(&mut self) -> Translated<String> {
        let mut text = String::new();
        loop {
            match self.rest.next() {
                Some('}') => break,
                Some(c) => text.push(c),
                None => return Err("a { is never closed".into()),
            }
        }
        let number = |text: &str| match text.chars().all(|c| c.is_ascii_digit()) {
            true => text.parse::<u32>().map_err(|_| format!("{{{text}}} is no number of times")),
            false => Err(format!("{{{text}}} is no number of times")),
        };
        let (least, most) = text.split_once(',').map_or((&*text, None), |(l, m)| (l, Some(m)));
        let least = number(least)?;
        let Some(most) = most else { return Ok(format!("{{{least}}}")) };
        if most.is_empty() {
            return Ok(format!("{{{least},}}"));
        }
        match number(most)? {
            most if most < least => Err(format!("{{{text}}} ends before it begins")),
            most => Ok(format!("{{{least},{most}}}")),
        }
    }

    /// A set of characters, after its `[`.
    fn set(&mut self) -> Translated<String> {
        self.refuse_single_brackets()?;
        let mut set = String::from("[");
        if self.rest.next_if_eq(&'^').is_some() {
            set.push('^');
        }
        let empty = set.len();
        loop {
            match self.rest.next() {
                None => return Err("a [ is never closed".into()),
                Some(']') if set.len() == empty => return Err("a set has no characters".into()),
                Some(']') => break,
                Some('[') => set.push_str(self.class()?),
                Some('^') if self.escape != Some('^') => {
                    return Err("^ may only begin a set".into());
                }
                Some(c) => {
                    let from = self.member(c)?;
                    set.push_str(&regex::escape(from.encode_utf8(&mut [0; 4])));
                    self.range(from, &mut set)?;
                }
            }
        }
        set.push(']');
        Ok(set)
    }

    /// `[:ALPHA:]` alone would be a set of the characters `:ALPH`, which nobody wants.
    fn refuse_single_brackets(&self) -> Translated<()> {
        let within: String = self.rest.clone().take_while(|c| *c != ']').collect();
        let name = within.trim_start_matches('^');
        let name = name.strip_prefix(':').and_then(|name| name.strip_suffix(':'));
        match name.filter(|name| name.chars().all(|c| c.is_ascii_alphabetic())) {
            Some(name) if !name.is_empty() => {
                let not = if within.starts_with('^') { "^" } else { "" };
                Err(format!("a set with a name stands within a set: [{not}[:{name}:]]"))
            }
            _ => Ok(()),
        }
    }

    fn member(&mut self, c: char) -> Translated<char> {
        if Some(c) == self.escape { self.escaped() } else { Ok(c) }
    }

    /// `-` and the last character of a range that begins with `from`, if they follow. A `-` at the
    /// set's end stands for itself.
    fn range(&mut self, from: char, set: &mut String) -> Translated<()> {
        let mut ahead = self.rest.clone();
        if ahead.next() != Some('-') || self.escape == Some('-') || ahead.peek() == Some(&']') {
            return Ok(());
        }
        self.rest = ahead;
        let Some(to) = self.rest.next() else { return Err("a [ is never closed".into()) };
        let to = self.member(to)?;
        if to < from {
            return Err(format!("the range {from}-{to} ends before it begins"));
        }
        set.push('-');
        set.push_str(&regex::escape(to.encode_utf8(&mut [0; 4])));
        Ok(())
    }

    /// A set with a name, after its first `[`: `:ALPHA:]`.
    fn class(&mut self) -> Translated<&'static str> {
        if self.rest.next_if_eq(&':').is_none() {
            return Err("a [ within a set is written with ESCAPE".into());
        }
        let name: String =
            std::iter::from_fn(|| self.rest.next_if(char::is_ascii_alphabetic)).collect();
        let closed = self.rest.next() == Some(':') && self.rest.next() == Some(']');
        let class = CLASSES.iter().find(|(known, _)| closed && name.eq_ignore_ascii_case(known));
        class.map(|(_, regex)| *regex).ok_or_else(|| {
            let names: Vec<&str> = CLASSES.iter().map(|(name, _)| *name).collect();
            format!("there is no set [:{name}:]; there are {}", names.join(", "))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn matches(pattern: &str, escape: Option<char>, texts: &[(&str, bool)]) {
        let regex = to_regex(pattern, escape).unwrap_or_else(|e| panic!("{pattern}: {e}"));
        for (text, expected) in texts {
            assert_eq!(regex.is_match(text), *expected, "'{text}' SIMILAR TO '{pattern}'");
        }
    }

    #[test]
    fn a_pattern_is_of_the_whole_text() {
        matches("b", None, &[("b", true), ("abc", false), ("b\n", false), ("", false)]);
        matches("a|bc", None, &[("a", true), ("bc", true), ("ac", false), ("abc", false)]);
        matches("", None, &[("", true), ("a", false)]);
        matches("%b%", None, &[("abc", true), ("b", true), ("a\nb\n", true), ("ac", false)]);
        matches("a_c", None, &[("abc", true), ("aéc", true), ("a\nc", true), ("ac", false)]);
        matches("_", None, &[("e\u{301}", false), ("\u{1F600}", true)]);
    }

    #[test]
    fn a_named_set_stands_within_a_set() {
        for (pattern, advice) in [
            ("[:ALPHA:]+", "[[:ALPHA:]]"),
            ("x[^:digit:]", "[^[:digit:]]"),
            ("[:nothing:]", "[[:nothing:]]"),
        ] {
            let error = to_regex(pattern, None).unwrap_err().to_string();
            assert!(error.contains(&format!("within a set: {advice}")), "{error}");
        }
        matches("[:]", None, &[(":", true), ("a", false)]);
        matches("[:a]", None, &[(":", true), ("a", true)]);
        matches("[:1:]", None, &[(":", true), ("1", true)]);
        matches("[[:ALPHA:]]+", None, &[("ab", true), (":", false)]);
    }

    #[test]
    fn repetitions_and_groups() {
        matches("ab*", None, &[("a", true), ("abbb", true), ("abab", false)]);
        matches("(ab)+", None, &[("abab", true), ("", false), ("aba", false)]);
        matches("ab?c", None, &[("ac", true), ("abc", true), ("abbc", false)]);
        matches("a{2}", None, &[("aa", true), ("a", false), ("aaa", false)]);
        matches("a{2,}", None, &[("aa", true), ("aaaa", true), ("a", false)]);
        matches("a{0,2}", None, &[("", true), ("aa", true), ("aaa", false)]);
        matches("(a|b(c|d))%", None, &[("bdx", true), ("bx", false), ("a", true)]);
        matches("_*", None, &[("", true), ("abc", true)]);
    }

    #[test]
    fn sets_of_characters() {
        matches("[abc]+", None, &[("cab", true), ("cad", false)]);
        matches("[^a-c]", None, &[("d", true), ("b", false), ("", false), ("dd", false)]);
        matches("[a-cx-]", None, &[("b", true), ("x", true), ("-", true), ("y", false)]);
        matches("[-a]", None, &[("-", true), ("a", true), ("b", false)]);
        matches("[[:ALPHA:]_]+", None, &[("aZ_", true), ("a1", false)]);
        matches("[[:digit:]]{3}", None, &[("123", true), ("12", false), ("\u{663}12", false)]);
        matches("[^[:ALNUM:]]", None, &[("-", true), ("a", false), ("7", false)]);
        matches("[[:SPACE:]]", None, &[(" ", true), ("\t", false)]);
        matches("[[:WHITESPACE:]]", None, &[(" ", true), ("\t", true), ("a", false)]);
        matches("[.*%$&~]", None, &[(".", true), ("%", true), ("&", true), ("a", false)]);
    }

    #[test]
    fn other_characters_and_escaped_ones_stand_for_themselves() {
        matches("a.c$", None, &[("a.c$", true), ("abc$", false), ("a.c", false)]);
        matches(r"\d^-", None, &[(r"\d^-", true), ("1^-", false)]);
        matches("100!%!!", Some('!'), &[("100%!", true), ("1000!", false)]);
        matches("a#_[#]#[]", Some('#'), &[("a_]", true), ("a_[", true), ("ax]", false)]);
        matches("%%", Some('%'), &[("%", true), ("ab", false)]);
    }

    #[test]
    fn what_is_no_pattern_is_refused() {
        for (pattern, escape, why) in [
            ("*a", None, "nothing before *"),
            ("a|+", None, "nothing before +"),
            ("(?)", None, "nothing before ?"),
            ("a**", None, "nothing before *"),
            ("(a", None, "a ( is never closed"),
            ("a)", None, "no ( for its )"),
            ("a]", None, "nothing opens before its ]"),
            ("a}", None, "nothing opens before its }"),
            ("[a", None, "a [ is never closed"),
            ("[a-", None, "a [ is never closed"),
            ("[]a]", None, "a set has no characters"),
            ("[c-a]", None, "ends before it begins"),
            ("[a^b]", None, "^ may only begin a set"),
            ("[[a]", None, "a [ within a set"),
            ("[[:WORD:]]", None, "there is no set [:WORD:]"),
            ("a{", None, "a { is never closed"),
            ("a{,2}", None, "{} is no number"),
            ("a{-1}", None, "{-1} is no number"),
            ("a{3,2}", None, "ends before it begins"),
            ("a{99999999999}", None, "no number of times"),
            ("((_{1000}){1000}){1000}", None, "repeats too much"),
            ("a!b", Some('!'), "b needs no escape"),
            ("a!", Some('!'), "nothing follows"),
        ] {
            let error = to_regex(pattern, escape).map(drop).unwrap_err().to_string();
            assert!(error.contains(&format!("'{pattern}' is no pattern")), "{pattern}: {error}");
            assert!(error.contains(why), "{pattern}: {error}");
        }
    }
}
