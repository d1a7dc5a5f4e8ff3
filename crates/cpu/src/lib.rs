//! The level of the processor: which vector instructions the fast paths may use.
//!
//! Fast paths have up to three forms, one for each [`Level`], with the same result. [`level`] is
//! the only place that decides between the forms: the greatest level of the processor, or less if
//! the environment variable `MILLSTREAM_CPU` says so. The level of a process never changes.

pub mod fronts;

use std::sync::atomic::{AtomicU8, Ordering};

/// The environment variable that caps the level.
pub const VARIABLE: &str = "MILLSTREAM_CPU";

/// Vector instructions. A level includes the levels below.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Level {
    /// The instructions that every processor of the architecture has.
    Portable = 1,
    /// AVX2, BMI1, BMI2, LZCNT and POPCNT.
    Avx2 = 2,
    /// AVX-512F, AVX-512DQ and AVX-512VL.
    Avx512 = 3,
}

impl Level {
    /// All levels, ascending.
    pub const ALL: [Level; 3] = [Level::Portable, Level::Avx2, Level::Avx512];

    /// The level's name, as in `MILLSTREAM_CPU`.
    pub fn name(self) -> &'static str {
        match self {
            Level::Portable => "portable",
            Level::Avx2 => "avx2",
            Level::Avx512 => "avx512",
        }
    }
}

/// The level of this process; 0 before the first question.
static LEVEL: AtomicU8 = AtomicU8::new(0);

/// The level that fast paths use. A wrong value of the variable, which [`check`] refuses, caps
/// nothing.
#[inline(always)]
pub fn level() -> Level {
    match LEVEL.load(Ordering::Relaxed) {
        1 => Level::Portable,
        2 => Level::Avx2,
        3 => Level::Avx512,
        _ => first_level(),
    }
}

#[cold]
#[inline(never)]
fn first_level() -> Level {
    let level = check().unwrap_or(detected());
    LEVEL.store(level as u8, Ordering::Relaxed);
    level
}

/// The greatest level that the processor has, whatever the variable says: for tests of all forms.
pub fn detected() -> Level {
    #[cfg(target_arch = "x86_64")]
    {
        let avx2 = is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("bmi1")
            && is_x86_feature_detected!("bmi2")
            && is_x86_feature_detected!("lzcnt")
            && is_x86_feature_detected!("popcnt");
        let avx512 = avx2
            && is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl");
        match (avx512, avx2) {
            (true, _) => Level::Avx512,
            (_, true) => Level::Avx2,
            _ => Level::Portable,
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    Level::Portable
}

/// The level, or the error of a wrong value of the variable: programs check the value at their
/// start.
pub fn check() -> Result<Level, String> {
    let value = std::env::var_os(VARIABLE).unwrap_or_default();
    capped(&value.to_string_lossy(), detected())
}

/// The level on a processor of the level `detected`. An empty value is no cap.
fn capped(value: &str, detected: Level) -> Result<Level, String> {
    if value.is_empty() {
        return Ok(detected);
    }
    let names = Level::ALL.map(Level::name).join(", ");
    let Some(level) = Level::ALL.into_iter().find(|level| level.name() == value) else {
        return Err(format!("{VARIABLE} is '{value}'\n  help: the values are {names}"));
    };
    if level > detected {
        return Err(format!(
            "{VARIABLE} is '{value}', but this processor has no such instructions\n  help: its \
             greatest level is {}",
            detected.name()
        ));
    }
    Ok(level)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_caps_the_level_and_a_wrong_one_is_an_error() {
        for detected in Level::ALL {
            assert_eq!(capped("", detected), Ok(detected));
            for level in Level::ALL {
                match capped(level.name(), detected) {
                    Ok(capped) => assert!(capped == level && level <= detected),
                    Err(text) => assert!(level > detected && text.contains(detected.name())),
                }
            }
        }
        let text = capped("AVX9", Level::Avx2).unwrap_err();
        assert_eq!(text, "MILLSTREAM_CPU is 'AVX9'\n  help: the values are portable, avx2, avx512");
    }

    #[test]
    fn the_level_is_never_above_the_processors_and_stays() {
        assert!(level() <= detected());
        assert_eq!(level(), level());
    }
}
