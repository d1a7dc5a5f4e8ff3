//! How far out of order the values of a column are, in the order in which they stand.

/// Greatest distance by which a value was behind an earlier value.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Order {
    /// The greatest value since the last gap.
    high: Option<i64>,
    /// The least and the greatest of all.
    range: Option<(i64, i64)>,
    /// In the values' unit.
    pub(super) disorder: u64,
}

impl Order {
    pub(super) fn add(&mut self, value: i64) {
        let high = self.high.map_or(value, |high| high.max(value));
        self.disorder = self.disorder.max(high.abs_diff(value));
        self.high = Some(high);
        let (least, greatest) = self.range.unwrap_or((value, value));
        self.range = Some((least.min(value), greatest.max(value)));
    }

    /// Marks a gap: earlier values say nothing about the order of later values.
    pub(super) fn gap(&mut self) {
        self.high = None;
    }

    /// Appends values that follow without a gap.
    pub(super) fn append(&mut self, next: &Order) {
        let Some((least, greatest)) = next.range else { return };
        if let Some(high) = self.high.filter(|high| *high > least) {
            self.disorder = self.disorder.max(high.abs_diff(least));
        }
        self.disorder = self.disorder.max(next.disorder);
        self.high = Some(self.high.map_or(greatest, |high| high.max(greatest)));
        let (first, last) = self.range.unwrap_or((least, greatest));
        self.range = Some((first.min(least), last.max(greatest)));
    }

    /// From the least value to the greatest.
    pub(super) fn span(&self) -> u64 {
        self.range.map_or(0, |(least, greatest)| greatest.abs_diff(least))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disorder_is_how_far_a_value_is_behind_the_greatest_before_it() {
        let mut order = Order::default();
        for value in [10, 12, 11, 20, 15, 30] {
            order.add(value);
        }
        assert_eq!((order.disorder, order.span()), (5, 20));
        order.gap();
        order.add(1);
        order.add(3);
        assert_eq!((order.disorder, order.span()), (5, 29));
    }

    #[test]
    fn parts_are_as_far_out_of_order_as_the_whole() {
        let values = [10, 12, 11, 40, 20, 15, 30, 45, 17, 60, 61];
        for cut in 0..=values.len() {
            let mut parts = Order::default();
            for part in [&values[..cut], &values[cut..]] {
                let mut order = Order::default();
                part.iter().for_each(|value| order.add(*value));
                parts.append(&order);
            }
            assert_eq!((parts.disorder, parts.span()), (28, 51), "{cut}");
        }
    }

    #[test]
    fn the_widest_range_does_not_overflow() {
        let mut order = Order::default();
        order.add(i64::MAX);
        order.add(i64::MIN);
        assert_eq!((order.disorder, order.span()), (u64::MAX, u64::MAX));
    }
}
