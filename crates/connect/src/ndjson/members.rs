//! The members of one line, each as the text of its value: slow, and exact about what is wrong.

use std::borrow::Cow;
use std::fmt;

use memchr::memchr2;
use serde::de::{DeserializeSeed, Error as _, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::fault::{DEPTH_HELP, MESSAGE_HELP, SKIP_HELP, Wrong, array_help, object_help};
use super::names::{Meaning, Names};
use crate::records::{Unit, shown};

/// Objects and arrays within each other.
pub(super) const DEPTH_MAX: usize = 128;

/// A column's value in a line.
#[derive(Debug, Default, Clone)]
pub(super) struct Slot<'a> {
    /// The text of the value.
    pub(super) value: Option<&'a str>,
    /// The member's name, unless it is the column's.
    alias: Option<Cow<'a, str>>,
    /// Another member that is the column just as well.
    rival: Option<Cow<'a, str>>,
}

/// Finds the values of the columns in a line that begins at offset `start` of the block.
pub(super) fn find<'a>(
    names: &Names,
    line: &'a [u8],
    start: usize,
    unit: Unit,
    slots: &mut [Slot<'a>],
) -> Result<(), Wrong> {
    slots.fill_with(Slot::default);
    let text = std::str::from_utf8(line).map_err(|error| {
        let (message, help) = match unit {
            Unit::Line => (
                "the line is not valid UTF-8",
                "convert the file, for example with iconv -f ISO-8859-1 -t UTF-8",
            ),
            Unit::Message => ("the message is not valid UTF-8", SKIP_HELP),
        };
        Wrong::new(start + error.valid_up_to(), message, help)
    })?;
    if let Some(at) = too_deep(line) {
        let message = format!("objects and arrays are nested more than {DEPTH_MAX} deep");
        return Err(Wrong::new(start + at, message, DEPTH_HELP));
    }
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let members = MembersSeed { names, slots };
    let read = members.deserialize(&mut deserializer).and_then(|()| deserializer.end());
    read.map_err(|error| syntax(line, start, unit, &error))
}

/// Fault of a line or message that is no object.
fn syntax(line: &[u8], start: usize, unit: Unit, error: &serde_json::Error) -> Wrong {
    let first = line.iter().position(|byte| !byte.is_ascii_whitespace()).unwrap_or(0);
    let begin = start + first;
    match line.get(first) {
        Some(b'[') => Wrong::new(begin, "expected an object, found an array", array_help(unit)),
        Some(b'{') if error.is_eof() => {
            let message = match unit {
                Unit::Line => "the object that starts here does not end on its line",
                Unit::Message => "the object that starts here does not end in its message",
            };
            Wrong::new(begin, message, object_help(unit))
        }
        Some(b'{') => {
            let at = start + error.column().saturating_sub(1).min(line.len());
            // Without the line, which is always 1, and the column, which the place has.
            let message = error.to_string();
            let message = message.rsplit_once(" at line ").map_or(&*message, |(front, _)| front);
            let is_second = unit == Unit::Message && message == "trailing characters";
            Wrong::new(at, message, if is_second { MESSAGE_HELP } else { SKIP_HELP })
        }
        _ => {
            let message = format!("expected an object, found '{}'", shown(&line[first..]));
            Wrong::new(begin, message, object_help(unit))
        }
    }
}

/// Where a line is nested too deep. Sees brackets outside of strings, whatever else is wrong.
fn too_deep(line: &[u8]) -> Option<usize> {
    let (mut depth, mut at) = (0usize, 0);
    while line.len() > DEPTH_MAX
        && let Some(byte) = line.get(at)
    {
        match byte {
            b'{' | b'[' if depth == DEPTH_MAX => return Some(at),
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.saturating_sub(1),
            b'"' => {
                at += 1;
                while let Some(found) = memchr2(b'"', b'\\', line.get(at..)?) {
                    at += found;
                    if line[at] == b'"' {
                        break;
                    }
                    at += 2;
                }
            }
            _ => {}
        }
        at += 1;
    }
    None
}

/// Takes the members of an object that are columns.
struct MembersSeed<'s, 'a> {
    names: &'s Names,
    slots: &'s mut [Slot<'a>],
}

impl<'a> DeserializeSeed<'a> for MembersSeed<'_, 'a> {
    type Value = ();

    fn deserialize<D: serde::Deserializer<'a>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'a> Visitor<'a> for MembersSeed<'_, 'a> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<M: MapAccess<'a>>(self, mut members: M) -> Result<(), M::Error> {
        while let Some(name) = members.next_key_seed(MemberName)? {
            let (slot, exact) = match self.names.meaning(&name) {
                Meaning::Column { slot, exact } => (&mut self.slots[slot], exact),
                Meaning::Unused => {
                    members.next_value::<IgnoredAny>()?;
                    continue;
                }
                Meaning::Either => {
                    let name = shown(name.as_bytes());
                    return Err(M::Error::custom(format!(
                        "the member '{name}' may be one of several columns, whose names differ \
                         only in case"
                    )));
                }
            };
            let value = Some(members.next_value::<&RawValue>()?.get());
            match (exact, slot.value.is_some(), slot.alias.is_some()) {
                (true, true, false) => return Err(M::Error::custom(twice(&name))),
                (true, _, _) => *slot = Slot { value, alias: None, rival: None },
                (false, true, false) => {}
                (false, true, true) => slot.rival = Some(name),
                (false, false, _) => *slot = Slot { value, alias: Some(name), rival: None },
            }
        }
        for slot in self.slots.iter() {
            if let (Some(name), Some(rival)) = (&slot.alias, &slot.rival) {
                return Err(M::Error::custom(match name == rival {
                    true => twice(name),
                    false => format!(
                        "the members '{}' and '{}' differ only in case, and either may be the \
                         column",
                        shown(name.as_bytes()),
                        shown(rival.as_bytes())
                    ),
                }));
            }
        }
        Ok(())
    }
}

fn twice(name: &str) -> String {
    format!("the member '{}' is given twice", shown(name.as_bytes()))
}

/// A member's name, borrowed where it has no escapes.
struct MemberName;

impl<'a> DeserializeSeed<'a> for MemberName {
    type Value = Cow<'a, str>;

    fn deserialize<D: serde::Deserializer<'a>>(self, d: D) -> Result<Cow<'a, str>, D::Error> {
        d.deserialize_str(MemberName)
    }
}

impl<'a> Visitor<'a> for MemberName {
    type Value = Cow<'a, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a member")
    }

    fn visit_borrowed_str<E>(self, name: &'a str) -> Result<Cow<'a, str>, E> {
        Ok(Cow::Borrowed(name))
    }

    fn visit_str<E>(self, name: &str) -> Result<Cow<'a, str>, E> {
        Ok(Cow::Owned(name.to_string()))
    }
}
