//! Refusals of queries over unbounded tables: queries that would never give a result, and queries
//! whose result would have no deterministic order.

use crate::names::catalog::TableEntry;
use crate::stages::lower::{Fires, Places, Rows, Stage};
use crate::stages::{joined::Unwindowed, joins::NO_PAIR, nest::Inner};
use crate::syntax::prelude::*;

/// A grouping without a window over a table that never ends.
pub(crate) fn endless_group(table: &TableEntry, stage: &Stage, places: &Places) -> SqlError {
    let over_windows = match &stage.input {
        Rows::Table(_) | Rows::Expanded(_) | Rows::Sides(_) => false,
        Rows::Stages(parts) => {
            parts.iter().any(|p| p.stage.fires.as_ref().is_some_and(Fires::is_windowed))
        }
    };
    let name = &table.name;
    let place = places.group_by.or(places.distinct);
    let by_time = |part: &Inner| match &part.stage.fires {
        Some(Fires::Joined(joined)) => joined.interval.is_some(),
        _ => false,
    };
    if let Rows::Stages(parts) = &stage.input
        && parts.iter().any(by_time)
    {
        return SqlError::unsupported(format!(
            "table '{name}' never ends, and what a join by times gives has no windows, so a GROUP BY \
             over that would never give a result"
        ))
        .at(place.or(places.statement))
        .help(
            "join first, and assign windows to what that gives, by its event time:\n\
             CREATE VIEW j AS SELECT ts, … FROM … JOIN …;\n\
             SELECT … FROM TABLE(TUMBLE(TABLE j, DESCRIPTOR(ts), …)) GROUP BY window_start, \
             window_end",
        );
    }
    if over_windows {
        return SqlError::unsupported(format!(
            "table '{name}' never ends, so a GROUP BY over all of its windows would never give a \
             result"
        ))
        .at(place.or(places.statement))
        .help(
            "GROUP BY the columns that hold window_start and window_end, too, or assign longer \
             windows to the result, which selects window_time AS inner_time: \
             TABLE(TUMBLE(TABLE …, DESCRIPTOR(inner_time), …))",
        );
    }
    if let (None, Some(union)) = (place, places.union) {
        let message = format!(
            "table '{name}' never ends, so a UNION, which leaves out repeated rows, would never \
             give a result"
        );
        return SqlError::unsupported(message).at(Some(union)).help("write UNION ALL");
    }
    let time = table.time_name();
    let ts = time.unwrap_or("ts");
    let mut help = format!(
        "group by a window, so that results come as time passes:\n\
         SELECT window_start, … FROM TABLE(TUMBLE(TABLE {name}, DESCRIPTOR({ts}), INTERVAL '10' \
         SECOND))\nGROUP BY window_start, window_end, …"
    );
    if time.is_none() {
        help.push_str(&format!(
            "\nand add to CREATE TABLE {name}: WATERMARK FOR ts AS ts - INTERVAL '5' SECOND"
        ));
    }
    SqlError::unsupported(format!(
        "table '{name}' never ends, so a GROUP BY without a window would never give a result"
    ))
    .at(places.group_by.or(places.statement))
    .help(help)
}

/// A ranking without a window over a table that never ends.
pub(crate) fn endless_ranking(table: &TableEntry, name: &str, places: &Places) -> SqlError {
    SqlError::unsupported(format!(
        "table '{}' never ends, so a rank of {name} without a window would never be final: any \
         later row may change it",
        table.name
    ))
    .at(places.over.or(places.statement))
    .help(
        "rank the rows of each window: PARTITION BY window_start, window_end, …\n\
         over TABLE(TUMBLE(…)), or over a query with GROUP BY window_start, window_end",
    )
}

/// An ORDER BY over a table that never ends.
pub(crate) fn endless_order(table: &str, places: &Places) -> SqlError {
    SqlError::unsupported(format!(
        "table '{table}' never ends, so an ORDER BY would never give a result"
    ))
    .at(places.order_by.or(places.statement))
    .help("leave it out: rows come as they are read")
}

/// A UNION ALL of a grouping without a window and of what never ends.
pub(crate) fn endless_part(table: &str, places: &Places) -> SqlError {
    SqlError::unsupported(format!(
        "table '{table}' never ends, so the rows of the GROUP BY beside it, which come last, would \
         never come"
    ))
    .at(places.group_by.or(places.union).or(places.statement))
    .help(TWO_OUTPUTS)
}

/// Records and results of windows in one output.
pub(crate) fn windows_beside_records(places: &Places) -> SqlError {
    SqlError::unsupported(
        "records and results of windows do not go into one output: in which order they come would \
         depend on chance",
    )
    .at(places.union.or(places.statement))
    .help(TWO_OUTPUTS)
}

const TWO_OUTPUTS: &str = "write two queries; in a statement set they share the reading of a table:\n\
     EXECUTE STATEMENT SET BEGIN INSERT INTO …; INSERT INTO …; END";

/// Error for a join without a window over an endless table; `ends` says which sides end.
pub(crate) fn endless_join(table: &TableEntry, join: &Unwindowed, ends: [bool; 2]) -> SqlError {
    let Unwindowed { name, windows, within, timeless, tables, keeps, by_time, place } = join;
    let one_ends = ends != [false, false];
    let table = &table.name;
    let without_time = match timeless {
        [true, true] => Some("both sides have"),
        [true, false] => Some("its left side has"),
        [false, true] => Some("its right side has"),
        [false, false] => None,
    };
    let windowed = *windows == [true, true];
    let unbounded = without_time.filter(|_| *within && !windowed && !one_ends);
    let message = match (unbounded, by_time) {
        (Some(without), _) => format!(
            "{name} is not bounded by the setting 'join.within', as {without} no event time, and \
             table '{table}' never ends: {KEPT}"
        ),
        _ if windowed => format!(
            "{name} does not say that both rows are of the same window, and table '{table}' never \
             ends: {KEPT}"
        ),
        (_, Some((why, _))) if *why == NO_PAIR => format!("{name} {why}"),
        (_, Some((why, _))) => format!("{name} {why}, and table '{table}' never ends: {KEPT}"),
        _ if one_ends => format!(
            "{name} keeps the rows of both sides until both end, and table '{table}' never ends"
        ),
        _ => {
            let without = match windows {
                [true, false] => "has windows on its left side only",
                [false, true] => "has windows on its right side only",
                _ => "has no windows",
            };
            format!("{name} {without}, and table '{table}' never ends: {KEPT}")
        }
    };
    let help = match (unbounded, by_time) {
        (Some(_), _) => EVENT_TIME,
        _ if windowed => {
            "join within windows: L.window_start = R.window_start AND L.window_end = R.window_end \
             AND …"
        }
        (_, Some((_, help))) => help,
        _ if *keeps && ends[0] => {
            "a row of the side that ends can be left out only when the other one has ended, too: \
             join within windows, or within an interval of their event times"
        }
        _ if one_ends => {
            "look up what a table holds when a record is taken in: FROM t JOIN side FOR SYSTEM_TIME \
             AS OF PROCTIME() AS s ON t.k = s.k"
        }
        _ => "",
    };
    let help = match (help, without_time) {
        ("", Some(without)) => {
            format!("{}\n({without} no event time yet: {EVENT_TIME})", or_within(tables))
        }
        ("", None) => or_within(tables),
        (help, _) => help.to_string(),
    };
    let error = SqlError::unsupported(message);
    let error = match place {
        Some(place) => error.at(Some(place.span)).in_source(&place.source),
        None => error,
    };
    error.help(help)
}

/// Advice for a join of these tables, each with its event time.
fn or_within(tables: &[Option<(String, String)>; 2]) -> String {
    let of = |side: usize| match &tables[side] {
        Some((table, time)) => (table.as_str(), time.as_str()),
        None => ("…", "…"),
    };
    let ((left, left_time), (right, right_time)) = (of(0), of(1));
    format!(
        "assign the same windows to both sides, and join within them:\n\
         FROM TABLE(TUMBLE(TABLE {left}, DESCRIPTOR({left_time}), INTERVAL '10' SECOND)) AS L\n\
         JOIN TABLE(TUMBLE(TABLE {right}, DESCRIPTOR({right_time}), INTERVAL '10' SECOND)) AS R\n\
         ON L.window_start = R.window_start AND L.window_end = R.window_end AND …\n\
         or say how far apart the event times of two rows may be, for this join in ON:\n\
         L.{left_time} BETWEEN R.{right_time} - INTERVAL '1' HOUR AND R.{right_time} + \
         INTERVAL '1' HOUR\nor for every join: SET 'join.within' = '1 hour'"
    )
}

const EVENT_TIME: &str = "select the column too that the table's watermark is for, or the \
     window_time of windows";

const KEPT: &str = "its rows would have to be kept for ever, as a partner may come at any time";
