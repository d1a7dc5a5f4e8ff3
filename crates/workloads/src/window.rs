//! Windows other than a workload's own: which kind, and how long.

use std::fmt::{self, Display, Formatter};
use std::str::FromStr;

/// How windows lie in event time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WindowKind {
    /// One after the other.
    #[default]
    Tumble,
    /// One begins each `slide_ms`, of which the windows' length is a multiple.
    Hop {
        /// Milliseconds, at least 1.
        slide_ms: u64,
    },
    /// They grow by a step until they have their length, and then begin anew.
    Cumulate {
        /// Milliseconds, at least 1; the length is a multiple of it.
        step_ms: u64,
    },
    /// Each key has its own: records at most the length apart are in one.
    Session,
}

impl WindowKind {
    /// Whether a window's end does not follow from its start.
    pub fn has_ends(self) -> bool {
        matches!(self, WindowKind::Cumulate { .. } | WindowKind::Session)
    }
}

/// Windows of a kind and a length, as `--window` names them: `tumble:2s`, `hop:60s:1s` (size,
/// slide), `cumulate:60s:1s` (size, step), `session:500ms` (gap).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// How they lie.
    pub kind: WindowKind,
    /// Their size, or the sessions' gap, milliseconds, at least 1.
    pub ms: u64,
}

/// Forms of windows, for messages.
const FORMS: &str = "write tumble:SIZE, hop:SIZE:SLIDE, cumulate:SIZE:STEP or session:GAP, with \
                     lengths such as 500ms, 10s, 1m or 1h";

/// The longest window: a thousand years.
const MS_MAX: u64 = 1000 * 366 * 86_400_000;

impl FromStr for Window {
    type Err = String;

    fn from_str(text: &str) -> Result<Window, String> {
        let forms = |what: String| format!("{what}; {FORMS}");
        let parts: Vec<&str> = text.split(':').collect();
        let ms = |part: &str| {
            length_ms(part).ok_or_else(|| forms(format!("'{part}' is no length of a window")))
        };
        let parts_of = |size: &str, part: &str, name: &str| {
            let (size, part) = (ms(size)?, ms(part)?);
            if size % part != 0 {
                return Err(format!(
                    "the size, {size} ms, is no multiple of the {name}, {part} ms"
                ));
            }
            Ok((size, part))
        };
        match parts[..] {
            ["tumble", size] => Ok(Window { kind: WindowKind::Tumble, ms: ms(size)? }),
            ["session", gap] => Ok(Window { kind: WindowKind::Session, ms: ms(gap)? }),
            ["hop", size, slide] => {
                let (ms, slide_ms) = parts_of(size, slide, "slide")?;
                Ok(Window { kind: WindowKind::Hop { slide_ms }, ms })
            }
            ["cumulate", size, step] => {
                let (ms, step_ms) = parts_of(size, step, "step")?;
                Ok(Window { kind: WindowKind::Cumulate { step_ms }, ms })
            }
            _ => Err(forms(format!("'{text}' is no window"))),
        }
    }
}

impl Display for Window {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let ms = self.ms;
        match self.kind {
            WindowKind::Tumble => write!(f, "tumble:{ms}ms"),
            WindowKind::Hop { slide_ms } => write!(f, "hop:{ms}ms:{slide_ms}ms"),
            WindowKind::Cumulate { step_ms } => write!(f, "cumulate:{ms}ms:{step_ms}ms"),
            WindowKind::Session => write!(f, "session:{ms}ms"),
        }
    }
}

/// `500ms`, `10s`, `1m` or `1h` in milliseconds.
fn length_ms(text: &str) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor = match unit {
        "ms" => 1,
        "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return None,
    };
    let ms = number.parse::<u64>().ok()?.checked_mul(factor)?;
    (1..=MS_MAX).contains(&ms).then_some(ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_read_as_they_are_written() {
        let hop = Window { kind: WindowKind::Hop { slide_ms: 1000 }, ms: 60_000 };
        assert_eq!("hop:60s:1s".parse(), Ok(hop));
        assert_eq!("hop:1m:1000ms".parse(), Ok(hop));
        assert_eq!("session:500ms".parse(), Ok(Window { kind: WindowKind::Session, ms: 500 }));
        for text in ["tumble:2000ms", "hop:60000ms:1ms", "cumulate:6ms:3ms", "session:1ms"] {
            assert_eq!(text.parse::<Window>().map(|window| window.to_string()), Ok(text.into()));
        }
    }

    #[test]
    fn what_is_no_window_is_refused_with_what_would_be() {
        for text in [
            "",
            "hop",
            "hop:60s",
            "tumble:0s",
            "tumble:1",
            "session:-1s",
            "tumble:1y",
            "tumble:99999999999999999999h",
            "hop:1s:1s:1s",
            "Hop:1s:1s",
        ] {
            let error = text.parse::<Window>().expect_err(text);
            assert!(error.contains("hop:SIZE:SLIDE"), "{error}");
        }
        let error = "hop:10s:3s".parse::<Window>().expect_err("no multiple");
        assert!(error.contains("multiple of the slide, 3000 ms"), "{error}");
    }
}
