//! Joins by time, and time zones. Windows divide the local time of the session's zone, and an hour
//! of local time comes twice when clocks are put back. How far two instants are from each other,
//! and which version of a key is the last before an instant, local times cannot tell.

use crate::syntax::prelude::*;

use millstream_contract::plan::{Operator, Plan, Window};
use millstream_contract::zone::Zone;

/// Lets a plan with joins by time go by instants, where no windows divide local time.
pub(crate) fn join_by_instants(plan: &mut Plan) -> Result<()> {
    let by_time = |window: Option<&Window>| matches!(window, Some(Window::Interval(_)));
    let (mut joins, mut divides) = (false, false);
    for stage in &plan.stages {
        let (window, as_of) = match &stage.operator {
            Operator::Aggregate(aggregate) => (aggregate.window.as_ref(), false),
            Operator::Join(join) => (join.window.as_ref(), join.as_of),
            _ => (None, false),
        };
        let joins_by_time = as_of || by_time(window);
        joins |= joins_by_time;
        divides |= window.is_some() && !joins_by_time;
    }
    let mut times = plan.sources.iter_mut().filter_map(|source| source.event_time.as_mut());
    if !joins {
        return Ok(());
    }
    if !divides {
        times.for_each(|time| time.zone = None);
        return Ok(());
    }
    match times.find_map(|time| time.zone.as_ref()) {
        Some(zone) => Err(refused(zone)),
        None => Ok(()),
    }
}

fn refused(zone: &Zone) -> SqlError {
    let message = format!(
        "windows divide the local time of {zone}, and a join by TIMESTAMP_LTZ goes by instants: they \
         do not go together in one query"
    );
    SqlError::unsupported(message).help("SET 'time_zone' = 'UTC'")
}
