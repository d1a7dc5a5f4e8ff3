//! Senders of splits come and go.

use super::*;

/// A split that nobody sends to between its chunks.
struct Visited(TimedSplit);

impl Split for Visited {
    fn position(&self) -> Position {
        self.0.position()
    }
    fn name(&self) -> &str {
        self.0.name()
    }
    fn poll_next(&mut self, now_us: i64, waker: &Waker) -> Result<SplitPoll> {
        self.0.poll_next(now_us, waker)
    }
    fn is_absent(&self) -> bool {
        true
    }
}

/// The sender of the first split is far ahead and goes. The next sender of that split is where the
/// other split is.
#[test]
fn a_new_sender_begins_at_the_low_watermark() {
    let clock = Arc::new(Clock::default());
    let table = Timed(vec![
        VecDeque::from([(0, 900), (10, 50), (20, 60)]),
        VecDeque::from([(0, 10), (5, 40), (30, 70)]),
    ]);
    let options = OpenOptions::alone(1, 0, 2);
    let split = |number: usize| TimedSplit::new(number, &table.0[number], &options);
    let splits: Vec<Box<dyn Split>> = vec![Box::new(Visited(split(0))), Box::new(split(1))];
    let intake = intake_of(splits, table.clone(), &clock);
    let mut firsts = [0, 1].map(|worker| take(&intake, worker).after);
    firsts.sort();
    assert_eq!(firsts, [10, 900]);
    [0, 1].iter().for_each(|worker| _ = finish(&intake, *worker));
    nothing(&intake, 0);
    assert_eq!(finish(&intake, 0), 10, "nobody sends to the first split");
    clock.pass_time(5);
    assert_eq!(take(&intake, 1).after, 40);
    assert_eq!(finish(&intake, 1), 40);
    clock.pass_time(10);
    let batch = take(&intake, 0);
    assert_eq!(
        (batch.split, batch.stamp, batch.after),
        (0, 40, 50),
        "the record at 50 is not late"
    );
    assert_eq!(finish(&intake, 0), 40);
}
