//! The queries of NEXMark as SQL text, and their answers.
//!
//! | module | content |
//! |---|---|
//! | [`queries`] | the queries |
//! | [`rows`] | the summary of an answer |
//! | [`model`] | the answers, by plain maps |

pub mod model;
pub mod queries;
pub mod rows;
