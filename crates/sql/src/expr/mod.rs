//! Expressions: scalar functions, types and coercion, conditions, and their evaluation over
//! batches.

pub(crate) mod aggregates;
pub(crate) mod by_parts;
pub(crate) mod coercion;
pub(crate) mod collected;
pub(crate) mod collecting;
pub(crate) mod composed;
pub(crate) mod constants;
pub(crate) mod decimals;
pub(crate) mod evaluate;
pub(crate) mod implied;
pub(crate) mod indexed;
pub(crate) mod lazy;
pub(crate) mod located;
pub(crate) mod nearest;
pub(crate) mod one_form;
pub(crate) mod reads;
pub(crate) mod registered;
pub(crate) mod remembered;
pub(crate) mod safe;
pub(crate) mod scalars;
pub(crate) mod simplified;
pub(crate) mod text;
pub(crate) mod udf;
pub(crate) mod widest;
pub(crate) mod window_node;
pub(crate) mod wording;
