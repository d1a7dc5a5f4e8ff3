//! Whether expressions are the same, wherever they stand in the text.

use std::hash::DefaultHasher;

use crate::expr::located::without_marks;
use crate::syntax::prelude::*;

/// Whether expressions are the same, wherever they stand in the text.
pub(crate) fn alike(one: Option<&Expr>, other: Option<&Expr>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => one == other || without_marks(one) == without_marks(other),
        (one, other) => one.is_none() && other.is_none(),
    }
}

/// Whether so many expressions are the same, one by one.
pub(crate) fn all_alike(some: &[Expr], others: &[Expr]) -> bool {
    some.len() == others.len() && some.iter().zip(others).all(|(a, b)| alike(Some(a), Some(b)))
}

/// The hash of what is added.
pub(crate) fn hash_of(add: impl FnOnce(&mut DefaultHasher)) -> u64 {
    let mut state = DefaultHasher::new();
    add(&mut state);
    state.finish()
}

/// Hashes expressions, wherever they stand in the text.
pub(crate) fn hash_all(exprs: &[Expr], state: &mut DefaultHasher) {
    exprs.iter().for_each(|expr| without_marks(expr).hash(state));
}
