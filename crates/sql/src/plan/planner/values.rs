//! The texts of settings and declarations, for `SHOW SETTINGS`, `RESET` and `SHOW CREATE`.

use millstream_contract::settings::{SETTINGS, SettingError, Settings};

use super::{Outcome, Planner};
use crate::syntax::prelude::*;
use crate::syntax::{script::Statement, statement::StatementKind};

/// Values of settings as they were written, by key.
#[derive(Debug, Clone, Default)]
pub(super) struct SettingValues {
    pub(super) now: BTreeMap<String, String>,
    /// Values before the first statement, and the settings with these values.
    first: Option<(BTreeMap<String, String>, Settings)>,
}

impl SettingValues {
    /// A statement is executed.
    pub(super) fn begin(&mut self, settings: &Settings) {
        self.first.get_or_insert_with(|| (self.now.clone(), settings.clone()));
    }
}

impl Planner {
    /// Changes a setting from outside SQL (`--set key=value`).
    pub fn set(&mut self, key: &str, value: &str) -> std::result::Result<(), SettingError> {
        self.settings.set(key, value)?;
        self.values.now.insert(key.to_string(), value.trim().to_string());
        self.set_places.remove(key);
        Ok(())
    }

    /// Says of a setting's value that it does not go with the rest of a job, and shows where it
    /// stands, if `SET` gave it.
    pub fn refuse_setting(&self, error: SettingError) -> SqlError {
        let place = self.set_places.get(&error.key);
        let refused = setting_error(error).at(place.map(|place| place.span));
        match place {
            Some(place) => refused.in_source(&place.source),
            None => refused,
        }
    }

    /// Executes a statement, and keeps its text if it declares a table or a view.
    pub(super) fn run(&mut self, statement: &Statement) -> Result<Outcome> {
        self.values.begin(&self.settings);
        let new = statement.declares().filter(|name| self.catalog.get(name).is_none());
        let outcome = self.run_kind(statement)?;
        let replaces = matches!(statement.kind, StatementKind::CreateView { or_replace: true, .. });
        if let Some(name) = new.or(statement.declares().filter(|_| replaces)) {
            self.created.insert(name.to_string(), statement.text());
        }
        Ok(outcome)
    }

    /// Gives a setting, or all, the value that it had before the first statement.
    pub(super) fn reset(&mut self, key: Option<&Ident>) -> Result<Outcome> {
        let name = key.map(|key| key.value.as_str());
        if let (Some(key), Some(name)) = (key, name)
            && !SETTINGS.iter().any(|(known, ..)| *known == name)
        {
            let error = SqlError::new(ErrorKind::Setting, format!("there is no setting '{name}'"));
            let known = SETTINGS.iter().map(|(known, ..)| *known);
            return Err(error.at(Span::new(key.span)).meant(name, known, ""));
        }
        let Some((values, settings)) = self.values.first.clone() else { return Ok(Outcome::Done) };
        let stays = |key: &String| name.is_some_and(|name| name != key);
        let set: Vec<(String, String)> =
            self.values.now.clone().into_iter().filter(|(key, _)| stays(key)).collect();
        self.settings = settings;
        self.set_places.retain(|key, _| stays(key));
        let places = self.set_places.clone();
        self.values.now = values;
        for (key, value) in set {
            self.set(&key, &value).map_err(setting_error)?;
        }
        self.set_places = places;
        Ok(Outcome::Done)
    }
}

pub(super) fn setting_error(error: SettingError) -> SqlError {
    let message = format!("setting '{}': {}", error.key, error.message);
    SqlError::new(ErrorKind::Setting, message).help(error.help)
}
