//! The kinds of windows, and what their lengths may be.

use millstream_contract::plan::{Cumulate, Hop, Session, Tumble, Window};

use crate::syntax::durations::duration;
use crate::syntax::prelude::*;

/// A window function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum WindowKind {
    Tumble,
    Hop,
    Cumulate,
    Session,
}

/// Windows of all times this far from 1970 have a number: up to the year 9999.
const NUMBERED_US: i64 = 8_030 * 366 * 86_400 * 1_000_000;

/// A constant interval of a statement.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Length {
    /// Microseconds.
    pub(crate) us: i64,
    pub(crate) place: Option<Span>,
}

impl WindowKind {
    pub(crate) const ALL: [WindowKind; 4] =
        [WindowKind::Tumble, WindowKind::Hop, WindowKind::Cumulate, WindowKind::Session];

    /// The kind with this name, in any case.
    pub(crate) fn named(name: &str) -> Option<WindowKind> {
        WindowKind::ALL.into_iter().find(|kind| name.eq_ignore_ascii_case(kind.name()))
    }

    pub(crate) fn of(window: &Window) -> WindowKind {
        match window {
            // That of a join is never asked for.
            Window::Tumble(_) | Window::Interval(_) => WindowKind::Tumble,
            Window::Hop(_) => WindowKind::Hop,
            Window::Cumulate(_) => WindowKind::Cumulate,
            Window::Session(_) => WindowKind::Session,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            WindowKind::Tumble => "TUMBLE",
            WindowKind::Hop => "HOP",
            WindowKind::Cumulate => "CUMULATE",
            WindowKind::Session => "SESSION",
        }
    }

    /// The names of its arguments in FROM, in their order. Those between the time column and the
    /// offset are lengths.
    pub(crate) fn arguments(self) -> &'static [&'static str] {
        match self {
            WindowKind::Tumble => &["DATA", "TIMECOL", "SIZE", "OFFSET"],
            WindowKind::Hop => &["DATA", "TIMECOL", "SLIDE", "SIZE", "OFFSET"],
            WindowKind::Cumulate => &["DATA", "TIMECOL", "STEP", "SIZE", "OFFSET"],
            WindowKind::Session => &["DATA", "TIMECOL", "GAP"],
        }
    }

    /// The names of its lengths.
    pub(crate) fn lengths(self) -> &'static [&'static str] {
        let arguments = &self.arguments()[2..];
        arguments.strip_suffix(&["OFFSET"]).unwrap_or(arguments)
    }

    /// Name of a length or an offset in messages.
    pub(crate) fn what(self, argument: &str) -> String {
        let of = if self == WindowKind::Session { "session" } else { "window" };
        format!("a {of}'s {}", argument.to_lowercase())
    }

    /// The window of these lengths, as many as it takes.
    pub(crate) fn window(self, lengths: &[Length], offset: Option<Length>) -> Result<Window> {
        for (argument, length) in self.lengths().iter().zip(lengths) {
            self.check_whole(argument, length)?;
            if length.us <= 0 {
                return Err(SqlError::types(format!("{} must be positive", self.what(argument)))
                    .at(length.place)
                    .help("write for example INTERVAL '10' SECOND"));
            }
        }
        if let Some(offset) = &offset {
            self.check_whole("offset", offset)?;
        }
        // An offset of a slide or a window more or less changes nothing.
        let offset = |period: i64| offset.map_or(0, |offset| offset.us.rem_euclid(period));
        Ok(match (self, lengths) {
            (WindowKind::Tumble, [size]) => {
                Window::Tumble(Tumble { size_us: size.us, offset_us: offset(size.us) })
            }
            (WindowKind::Hop, [slide, size]) => {
                self.check_multiple("slide", *slide, *size)?;
                let (slide_us, size_us) = (slide.us, size.us);
                Window::Hop(Hop { slide_us, size_us, offset_us: offset(slide_us) })
            }
            (WindowKind::Cumulate, [step, size]) => {
                self.check_multiple("step", *step, *size)?;
                let (step_us, size_us) = (step.us, size.us);
                Window::Cumulate(Cumulate { step_us, size_us, offset_us: offset(size_us) })
            }
            (WindowKind::Session, [gap]) => Window::Session(Session::new(gap.us, 0)),
            _ => return Err(SqlError::internal(format!("{self:?} of {}", lengths.len()))),
        })
    }

    fn check_whole(self, argument: &str, length: &Length) -> Result<()> {
        if length.us % 1000 == 0 {
            return Ok(());
        }
        let message = format!(
            "{} of {} is not a whole number of milliseconds",
            self.what(argument),
            duration(length.us)
        );
        Err(SqlError::unsupported(message)
            .at(length.place)
            .help("write for example INTERVAL '0.5' SECOND"))
    }

    /// Checks that a window's size is a multiple of its slide or step.
    fn check_multiple(self, of: &str, part: Length, size: Length) -> Result<()> {
        if size.us % part.us == 0 {
            return self.check_numbers(of, part, size);
        }
        let (name, shown, size_shown) = (self.name(), duration(part.us), duration(size.us));
        let message =
            format!("{name}'s size of {size_shown} is not a multiple of its {of} of {shown}");
        let help = match part.us % size.us == 0 {
            true => format!("{name} takes the {of} first, then the size: change their places"),
            false => {
                let below = size.us - size.us % part.us;
                let size = if below == 0 { part.us } else { below };
                format!("take for example a size of {}", duration(size))
            }
        };
        Err(SqlError::types(message).at(size.place.or(part.place)).help(help))
    }

    /// Checks that slices of windows can be numbered: a number combines a window's number with the
    /// number of a part in the window.
    fn check_numbers(self, of: &str, part: Length, size: Length) -> Result<()> {
        let fits = |part_us: i64| {
            let parts = i128::from(size.us / part_us);
            (i128::from(NUMBERED_US / part_us) + parts) * parts < i128::from(i64::MAX / 4 * 3)
        };
        if fits(part.us) {
            return Ok(());
        }
        let (name, shown, size_shown) = (self.name(), duration(part.us), duration(size.us));
        let parts = size.us / part.us;
        let message =
            format!("{name}'s size of {size_shown} is {parts} times its {of} of {shown}: too much");
        let longer = (1..).map(|zeros| part.us.saturating_mul(10_i64.saturating_pow(zeros)));
        let longer = longer.take(19).find(|part_us| size.us % part_us == 0 && fits(*part_us));
        let help = match longer {
            Some(part_us) => format!("take a {of} of {}, or a shorter size", duration(part_us)),
            None => format!("take a longer {of}, or a shorter size"),
        };
        Err(SqlError::unsupported(message).at(size.place.or(part.place)).help(help))
    }
}
