//! Columns of members: the column of exactly the member's name, else of its name in another case.

use std::collections::HashMap;

use arrow::datatypes::Fields;

/// Meaning of a member's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Meaning {
    /// This wanted column, by its exact name or whatever the case.
    Column { slot: usize, exact: bool },
    /// No column, or a column that is not read.
    Unused,
    /// Several columns by a name in another case, at least one of them read.
    Either,
}

/// The names of columns, or of the fields of a ROW.
#[derive(Debug)]
pub(super) struct Names {
    exact: HashMap<String, Meaning>,
    folded: HashMap<String, Meaning>,
    /// Whether members that are no columns are noted.
    pub(super) noted: bool,
}

impl Names {
    /// Of all `fields`. Those at the indices of `wanted` are known by their place in it.
    pub(super) fn new(fields: &Fields, wanted: &[usize]) -> Names {
        let mut slots = vec![None; fields.len()];
        for (slot, field) in wanted.iter().enumerate() {
            slots[*field] = Some(slot);
        }
        let mut names = Names { exact: HashMap::new(), folded: HashMap::new(), noted: false };
        for (field, slot) in fields.iter().zip(slots) {
            let meaning = |exact| match slot {
                Some(slot) => Meaning::Column { slot, exact },
                None => Meaning::Unused,
            };
            names.exact.insert(field.name().clone(), meaning(true));
            let folded = field.name().to_lowercase();
            names
                .folded
                .entry(folded)
                .and_modify(|other| match (*other, slot) {
                    (Meaning::Unused, None) => {}
                    _ => *other = Meaning::Either,
                })
                .or_insert(meaning(false));
        }
        names
    }

    /// The same names, but noting unused members if `noted`.
    pub(super) fn noting(self, noted: bool) -> Names {
        Names { noted, ..self }
    }

    /// Whether a member is to be noted as none of the columns.
    pub(super) fn is_strange(&self, name: &str) -> bool {
        self.noted
            && !self.exact.contains_key(name)
            && !self.folded.contains_key(&name.to_lowercase())
    }

    /// Meaning of a member's name.
    pub(super) fn meaning(&self, name: &str) -> Meaning {
        if let Some(meaning) = self.exact.get(name) {
            return *meaning;
        }
        self.folded.get(&name.to_lowercase()).copied().unwrap_or(Meaning::Unused)
    }
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::{DataType, Field};

    use super::*;

    #[test]
    fn an_exact_name_comes_before_one_of_another_case() {
        let field = |name: &str| Field::new(name, DataType::Int64, true);
        let fields: Fields = ["userid", "a", "A", "B\u{c9}"].map(field).to_vec().into();
        let names = Names::new(&fields, &[3, 0, 2]);
        let column = |slot, exact| Meaning::Column { slot, exact };
        assert_eq!(names.meaning("userid"), column(1, true));
        assert_eq!(names.meaning("userId"), column(1, false));
        assert_eq!(names.meaning("A"), column(2, true));
        assert_eq!(names.meaning("a"), Meaning::Unused);
        assert_eq!(names.meaning("b\u{e9}"), column(0, false));
        assert_eq!(names.meaning("c"), Meaning::Unused);
        let fields: Fields = ["ab", "aB"].map(field).to_vec().into();
        assert_eq!(Names::new(&fields, &[0]).meaning("AB"), Meaning::Either);
    }
}
