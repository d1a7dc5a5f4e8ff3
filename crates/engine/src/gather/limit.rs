//! LIMIT and OFFSET: what of a result is still to come.

/// Rows that are still to be left out, and how many of those behind them are wanted.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limit {
    pub(super) skip: u64,
    pub(super) left: Option<u64>,
}

impl Limit {
    pub(super) fn new(offset: u64, limit: Option<u64>) -> Limit {
        Limit { skip: offset, left: limit }
    }

    /// Whether all rows are wanted.
    pub(super) fn is_all(&self) -> bool {
        self.skip == 0 && self.left.is_none()
    }

    /// Whether no more rows are wanted.
    pub(super) fn is_over(&self) -> bool {
        self.left == Some(0)
    }

    /// Of the next rows: how many are left out, and how many of the others are wanted.
    pub(super) fn take(&mut self, rows: usize) -> (usize, usize) {
        let rows = rows as u64;
        let skipped = self.skip.min(rows);
        self.skip -= skipped;
        let mut len = rows - skipped;
        if let Some(left) = &mut self.left {
            len = len.min(*left);
            *left -= len;
        }
        (skipped as usize, len as usize)
    }
}
