//! Scopes of the operators of a stage and of the stages below it.

use crate::names::scope::Around;
use crate::stages::lower::{Rows, Stage};
use crate::stages::nest::Inner;

impl Stage {
    /// This stage, with a name of the text around.
    pub(crate) fn within(mut self, around: Option<Around<'_>>) -> Stage {
        around.iter().for_each(|around| self.place_within(around));
        self
    }

    fn place_within(&mut self, around: &Around<'_>) {
        if self.fires.is_some() {
            if self.scope.is_complete(around) {
                // The stages below have had a name before.
                return;
            }
            self.scope.within(around);
        }
        let place = |parts: &mut Vec<Inner>| {
            parts.iter_mut().for_each(|part| part.stage.place_within(around));
        };
        match &mut self.input {
            Rows::Stages(parts) => place(parts),
            Rows::Sides(sides) => sides.iter_mut().for_each(place),
            // No operators.
            Rows::Table(_) | Rows::Expanded(_) => {}
        }
    }
}
