//! Identity of an operator's state: state goes on in an edited query if its identity is the same.

use arrow::datatypes::DataType;
use serde::{Deserialize, Serialize};

use crate::plan::{Key, Window};

/// The meaning of an operator's state, as texts for people. Equal texts mean equal state.
///
/// Where state is found does not belong to it: a stage is found by any of its names
/// ([`crate::plan::Stage::names`]). Conditions on records (`WHERE`) and on results (`HAVING`) do
/// not belong to it either, nor does anything that may change with the input or with settings: how
/// many windows share a slice, which side of a join is broadcast, how many leaders there are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The kind of operator.
    pub operator: String,
    /// Keys, in order: name, type, and whether they can be NULL.
    pub keys: Vec<String>,
    /// Aggregates as SQL text with their type, or the columns of a join's sides.
    pub values: Vec<String>,
    /// The windows.
    pub window: String,
    /// How long windows wait for late records, microseconds.
    pub lateness_us: i64,
    /// Kinds of the kept values.
    pub layout: Vec<String>,
}

/// Names types as their user does.
pub type TypeName<'a> = &'a dyn Fn(&DataType) -> String;

impl Identity {
    /// The first reason why this operator cannot go on from state that was `saved`; `None`: it can.
    pub fn difference(&self, saved: &Identity) -> Option<String> {
        let texts = |what: &str, now: &str, before: &str| {
            (now != before).then(|| format!("{what} {now} now, and {before} in the checkpoint"))
        };
        let listed = |list: &[String]| format!("({})", list.join(", "));
        let lists = |what: &str, now: &[String], before: &[String]| {
            texts(what, &listed(now), &listed(before))
        };
        let lateness = |identity: &Identity| format!("{} ms", identity.lateness_us as f64 / 1000.0);
        texts("the operator is", &self.operator, &saved.operator)
            .or_else(|| lists("the keys are", &self.keys, &saved.keys))
            .or_else(|| texts("it has", &self.window, &saved.window))
            .or_else(|| lists("it keeps", &self.values, &saved.values))
            .or_else(|| texts("late records are waited for", &lateness(self), &lateness(saved)))
            .or_else(|| lists("a row of state is", &self.layout, &saved.layout))
    }
}

/// A key as text.
pub(super) fn key_text(key: &Key, nullable: bool, type_name: TypeName<'_>) -> String {
    column_text(&key.name, &key.data_type, nullable, type_name)
}

/// A column as text.
pub(super) fn column_text(
    name: &str,
    data_type: &DataType,
    nullable: bool,
    type_name: TypeName<'_>,
) -> String {
    let null = if nullable { "" } else { " NOT NULL" };
    format!("{name} {}{null}", type_name(data_type))
}

/// Windows as text: size, distance, offset.
pub(super) fn window_text(window: Option<&Window>) -> String {
    let ms = |us: i64| format!("{} ms", us as f64 / 1000.0);
    match window {
        None => "one window for the whole input".into(),
        Some(Window::Tumble(tumble)) => {
            let (size, offset) = (ms(tumble.size_us), ms(tumble.offset_us));
            format!("windows of {size} from {offset}")
        }
        Some(Window::Hop(hop)) => {
            let (size, slide, offset) = (ms(hop.size_us), ms(hop.slide_us), ms(hop.offset_us));
            format!("windows of {size} every {slide} from {offset}")
        }
        Some(Window::Cumulate(window)) => {
            let (size, step, offset) =
                (ms(window.size_us), ms(window.step_us), ms(window.offset_us));
            format!("windows that grow by {step} to {size} from {offset}")
        }
        Some(Window::Session(session)) => {
            let (gap, partition) = (ms(session.gap_us), session.partition);
            format!("sessions with a gap of {gap} of the first {partition} keys")
        }
        Some(Window::Interval(interval)) => {
            let (before, after) = (ms(interval.before_us), ms(interval.after_us));
            let anchor = ["left", "right"][interval.anchor.min(1)];
            format!("rows from {before} before to {after} after those of the {anchor} side")
        }
    }
}
