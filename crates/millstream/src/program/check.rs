//! Checking a script: every statement is parsed and planned, none runs, and all that is wrong is
//! told at once.

use std::collections::{HashMap, HashSet};

use millstream_sql::{
    ErrorKind, MISTAKES_MAX, Mended, Mistake, Span, SqlError, Statement, parse_all,
};

use super::control::SessionControl;
use super::planned::Executed;
use crate::failure::Failure;
use crate::session::Session;

/// Result of checking a script.
#[derive(Debug)]
pub struct Checked {
    /// Number of statements, including statements with mistakes.
    pub statements: usize,
    /// Mistakes, in the order of the text.
    pub failures: Vec<Failure>,
    /// Warnings about inserted rows.
    pub remarks: Vec<String>,
}

/// Parses and plans all statements of a script, whatever is wrong with one before. The session
/// stays as it is. What would only go wrong because a table's own declaration is wrong is not
/// told.
pub fn check(session: &Session, text: &str, name: &str) -> Checked {
    let (statements, mistakes) = parse_all(text, name);
    let number = statements.len() + mistakes.iter().filter(|mistake| mistake.is_first).count();
    let mut broken = Broken::default();
    broken.names.extend(mistakes.iter().filter_map(|mistake| mistake.declares.clone()));
    let mut found: Vec<(Option<(u32, u32)>, Failure)> = mistakes
        .into_iter()
        .map(|Mistake { error, .. }| (place(&error), Failure::Sql(error)))
        .collect();
    let (mut trial, mut remarks) = (session.rehearsal(), Vec::new());
    for statement in &statements {
        let failure = match trial.execute(statement) {
            Err(failure) => failure,
            Ok(Executed::Query(planned)) => {
                let sinks = planned.sinks.iter().chain(&planned.left_out);
                remarks.extend(sinks.filter_map(|sink| sink.remark()));
                continue;
            }
            Ok(_) => continue,
        };
        let mut left = None;
        match failure {
            Failure::Sql(error) => {
                let (mistakes, mended) = and_further(error, statement, &trial);
                let mistakes = mistakes.into_iter().filter(|error| !broken.explains(error));
                found.extend(mistakes.map(|error| (place(&error), Failure::Sql(error))));
                left = mended;
            }
            other => found.push((None, other)),
        }
        if let Some(name) = statement.declares() {
            let written = statements.iter().any(|other| other.inserts_into(name));
            broken.note(name, left.and_then(|left| declare(&mut trial, left, written)));
        }
    }
    // What has no place comes last.
    found.sort_by_key(|(place, _)| place.unwrap_or((u32::MAX, u32::MAX)));
    let failures = found.into_iter().map(|(_, failure)| failure).collect();
    Checked { statements: number, failures, remarks }
}

/// How a table is there whose options have a mistake.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Declared {
    /// Without these options, with those of these keys.
    With(Vec<String>),
    /// With another connector.
    Elsewhere,
}

/// Declares a table of which nothing but options is wrong, so that queries of it are checked, too;
/// `None` if something else is. `written`: there are rows inserted into it.
fn declare(trial: &mut Session, mended: Mended, written: bool) -> Option<Declared> {
    if !mended.is_whole_table() {
        return None;
    }
    if trial.execute(&mended.statement).is_ok() {
        return Some(Declared::With(mended.option_keys()));
    }
    let elsewhere = mended.with_options(match written {
        true => &[("connector", "blackhole")],
        false => &[("connector", "datagen"), ("number-of-rows", "1")],
    });
    trial.execute(&elsewhere.statement).is_ok().then_some(Declared::Elsewhere)
}

/// Declarations with mistakes.
#[derive(Debug, Default)]
struct Broken {
    /// Names without a declaration, since the declaration has mistakes.
    names: HashSet<String>,
    /// Tables that are declared without their wrong options, and the keys of the others.
    without: HashMap<String, Vec<String>>,
    /// Tables declared with a substitute connector.
    elsewhere: HashSet<String>,
}

impl Broken {
    fn note(&mut self, name: &str, declared: Option<Declared>) {
        let name = name.to_string();
        match declared {
            None => drop(self.names.insert(name)),
            Some(Declared::With(keys)) => drop(self.without.insert(name, keys)),
            Some(Declared::Elsewhere) => drop(self.elsewhere.insert(name)),
        }
    }

    /// Whether nothing may be wrong but these declarations.
    fn explains(&self, error: &SqlError) -> bool {
        let missing = |name: &String| {
            let function = format!("there is no function '{name}'");
            error.message == format!("there is no table '{name}'")
                || error.message.eq_ignore_ascii_case(&function)
        };
        let names = |name: &String| error.message.contains(&format!("'{name}'"));
        // The wrong option may be the needed option.
        let lacks = |(name, keys): (&String, &Vec<String>)| {
            let option = error.message.strip_prefix(&format!("table '{name}', option '"));
            let key = option.and_then(|rest| rest.split('\'').next());
            key.is_some_and(|key| !keys.iter().any(|known| known == key))
        };
        match error.kind {
            ErrorKind::Name => self.names.iter().any(missing),
            // An option may have said where the records end.
            ErrorKind::Unsupported if error.message.contains("never ends") => {
                !self.without.is_empty() || self.elsewhere.iter().any(names)
            }
            ErrorKind::Connector if self.without.iter().any(lacks) => true,
            ErrorKind::Unsupported | ErrorKind::Connector => self.elsewhere.iter().any(names),
            _ => false,
        }
    }
}

/// A statement's first mistake, and the mistakes that planning meets once known mistakes are left
/// out; also the rest of the statement. A message that repeats for the same SELECT is kept once.
fn and_further(
    first: SqlError,
    statement: &Statement,
    session: &Session,
) -> (Vec<SqlError>, Option<Mended>) {
    let parts = Mended::of(statement);
    let place = parts.iter().find_map(|part| part.select_of(&first));
    let (mut mistakes, mut left) = (vec![(first, place)], None);
    for part in parts {
        let mut rest = Some(part);
        // The first mistake comes again.
        for _ in 0..=MISTAKES_MAX {
            let Some(mended) = rest else { break };
            let executed = session.rehearsal().execute(&mended.statement);
            left = Some(mended.clone());
            let Err(Failure::Sql(error)) = executed else { break };
            let place = mended.select_of(&error);
            rest = mended.clone().without(&error);
            if !is_known(&mistakes, &error, place) && mended.is_independent(&error) {
                mistakes.push((without_wrong_help(error, &mistakes), place));
            }
        }
    }
    (mistakes.into_iter().map(|(error, _)| error).collect(), left)
}

/// Whether a mistake has been found before, as far as is known in the same SELECT.
fn is_known(known: &[(SqlError, Option<Span>)], error: &SqlError, place: Option<Span>) -> bool {
    known.iter().any(|(other, at)| {
        let elsewhere = at.is_some() && place.is_some() && *at != place;
        other.message == error.message && !elsewhere
    })
}

/// A name that is wrong itself is no help.
fn without_wrong_help(mut error: SqlError, known: &[(SqlError, Option<Span>)]) -> SqlError {
    let meant = error.help.as_deref().and_then(|help| help.strip_prefix("did you mean '"));
    if let Some(meant) = meant.and_then(|rest| rest.split('\'').next()) {
        let wrong = format!("'{meant}'");
        if known.iter().any(|(other, _)| other.message.contains(&wrong)) {
            error.help = None;
        }
    }
    error
}

fn place(error: &SqlError) -> Option<(u32, u32)> {
    error.span.map(|span| (span.line, span.column))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Line and column of each failure.
    fn places(text: &str) -> Vec<(u32, u32)> {
        let Checked { failures, .. } = check(&Session::new("."), text, "x.sql");
        let sql = |failure: &Failure| match failure {
            Failure::Sql(error) => place(error),
            _ => None,
        };
        failures.iter().filter_map(sql).collect()
    }

    #[test]
    fn every_statement_with_a_mistake_is_told_once() {
        let text = "CREATE TABLE t (v BIGNT) WITH ('connector' = 'datagen');
SELECT v FROM t;
CREATE TABLE u (v BIGINT) WITH ('connector' = 'datagen');
SELECT w FROM u;
SELEC 1;
CREATE VIEW x AS SELECT v FROM (;
SELECT v FROM x;
SELECT v FROM y;
SELECT SUM(v) FROM u WHERE nosuch(v);";
        let lines: Vec<u32> = places(text).into_iter().map(|(line, _)| line).collect();
        assert_eq!(lines, [1, 4, 5, 6, 8, 9]);
    }

    #[test]
    fn a_wrong_set_is_one_mistake() {
        let text = "CREATE TABLE u (v BIGINT) WITH ('connector' = 'datagen');
CREATE TABLE n (v BIGINT) WITH ('connector' = 'blackhole');
EXECUTE STATEMENT SET BEGIN
INSERT INTO n SELECT v FROM u;
SELECT v FROM u;
END;
SELECT w FROM u;";
        let lines: Vec<u32> = places(text).into_iter().map(|(line, _)| line).collect();
        assert_eq!(lines, [5, 7]);
    }

    #[test]
    fn every_mistake_of_a_statement_is_told() {
        let text = "CREATE TABLE u (v BIGINT, s STRING) WITH ('connector' = 'datagen');
CREATE TABLE a (v BIGNT, w INTT, s STRING) WITH ('connector' = 'datagen');
CREATE TABLE b (v BIGINT, w AS nov, x AS UPER(v), WATERMARK FOR noz AS v)
WITH ('connector' = 'datagen', 'rows-per-secnd' = '5', 'number-of-rows' = 'many');
SELECT nob, UPER(s),
s + 1, v
FROM u WHERE noc > 3 ORDER BY nod;
SELECT x.nog, x.noe FROM (SELECT
nof AS noe FROM u) x;
INSERT INTO nosuch SELECT v FROM u WHERE nob > 1;
SELECT v FROM u WHERE (nob = 1 AND noc = 2) OR
nod = 3;";
        let expected = [
            &[(2, 19), (2, 28), (3, 32), (3, 42), (3, 65), (4, 32), (4, 75)][..],
            &[(5, 8), (5, 13), (6, 1), (7, 14), (7, 31)],
            &[(8, 8), (9, 1), (10, 13), (10, 42)],
            &[(11, 24), (11, 36), (12, 1)],
        ];
        assert_eq!(places(text), expected.concat());
    }

    /// The lines on which there is a mistake, of a text behind two tables; each stands first on its
    /// line.
    fn lines(text: &str) -> Vec<u32> {
        let tables = "CREATE TABLE u (v BIGINT, s STRING) WITH ('connector' = 'datagen'); CREATE \
                      TABLE n (v BIGINT) WITH ('connector' = 'blackhole');";
        let places = places(&format!("{tables}{text}"));
        assert!(places.iter().all(|(_, column)| *column == 1), "{places:?}");
        places.into_iter().map(|(line, _)| line).collect()
    }

    #[test]
    fn a_wrong_option_hides_nothing_behind_it() {
        let text = "CREATE TABLE u (v BIGINT, s STRING) WITH ('connector' = 'datagen', 'rows-per-secnd' = '5');
CREATE TABLE f (v BIGINT) WITH ('connector' = 'file', 'pth' = 'x.csv', 'format' = 'csv');
CREATE TABLE g (v BIGINT) WITH ('connector' = 'datagn');
CREATE TABLE o (v BIGINT) WITH ('connector' = 'prnt', 'format' = 'csv');
SELECT w FROM u;
SELECT w FROM f;
SELECT v, UPER(v) FROM g;
INSERT INTO o SELECT nov FROM g;
INSERT INTO o (w) SELECT v FROM g;
SELECT nov FROM nosuch;";
        let lines: Vec<u32> = places(text).into_iter().map(|(line, _)| line).collect();
        assert_eq!(lines, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
    }

    #[test]
    fn a_secret_that_is_not_there_hides_nothing_and_makes_nothing_wrong() {
        let text =
            "CREATE TABLE f (v BIGINT) WITH ('connector' = 'file', 'format' = 'csv', 'path' =
'${env:MILLSTREAM_NOT_SET}/x', 'on_error' = 'many', 'csv.heder' = 'true');
CREATE TABLE s (v BIGINT) WITH ('connector' = 'socket', 'format' = 'csv', 'hostname' =
'${env:MILLSTREAM_NOT_SET}', 'port' =
'${file:absent}',
'csv.heder' = 'true');
CREATE TABLE o (v BIGINT) WITH ('connector' = 'file', 'format' = 'csv', 'path' =
'${env:MILLSTREAM_NOT_SET}/o');
SELECT v FROM f;
INSERT INTO o SELECT v FROM f;
SELECT
nov FROM s;
INSERT INTO o SELECT
nov FROM f;";
        let places: Vec<(u32, u32)> = places(text);
        let expected = [(2, 1), (2, 45), (2, 53)];
        assert_eq!(places[..3], expected);
        let lines: Vec<u32> = places[3..].iter().map(|(line, _)| *line).collect();
        assert_eq!(lines, [4, 5, 6, 8, 12, 14]);
    }

    /// Whether a table ends may depend on the option, and what its connector is for on its name.
    #[test]
    fn what_may_follow_from_a_wrong_option_is_not_told() {
        let text =
            "CREATE TABLE u (v BIGINT) WITH ('connector' = 'datagen', 'number-of-row' = '5');
CREATE TABLE o (v BIGINT) WITH ('connector' = 'fiel');
CREATE TABLE w (v BIGINT, ts TIMESTAMP(3), WATERMARK FOR t AS ts) WITH ('connector' = 'datagn');
SELECT v, COUNT(*) FROM u GROUP BY v;
SELECT v FROM u;
SELECT v FROM u ORDER BY v;
INSERT INTO o SELECT v FROM u;
SELECT v FROM o;
SELECT v FROM w;";
        let lines: Vec<u32> = places(text).into_iter().map(|(line, _)| line).collect();
        assert_eq!(lines, [1, 2, 3, 3]);
    }

    #[test]
    fn a_table_that_is_not_there_hides_nothing_but_its_columns() {
        let joined = "SELECT nox,
UPER(s) FROM
nosuch JOIN
nosuch2 ON nosuch.k = nosuch2.k WHERE noz = 1 GROUP BY noz ORDER BY noy;";
        assert_eq!(lines(joined), [2, 3, 4]);
        let within = "SELECT x FROM (SELECT x FROM
nosuch) AS t UNION ALL SELECT
nov FROM u;";
        assert_eq!(lines(within), [2, 3]);
        // Which columns the subquery has is not known.
        let all = "SELECT x FROM (SELECT * FROM
nosuch) AS t WHERE y = 1;";
        assert_eq!(lines(all), [2]);
    }

    #[test]
    fn mistakes_in_all_clauses_are_told() {
        let grouped = "SELECT s, COUNT(*) FROM u GROUP BY s,
nok,
UPER(s) HAVING
noh > 1 LIMIT
many;";
        assert_eq!(lines(grouped), [2, 3, 4, 5]);
        let joined = "SELECT u.v,
nov FROM u JOIN n USING (
nou, v,
now);";
        assert_eq!(lines(joined), [2, 3, 4]);
        let unnested = "SELECT item,
nov FROM u CROSS JOIN UNNEST(
noa) AS x (item);";
        assert_eq!(lines(unnested), [2, 3]);
        let declared = "CREATE TABLE p (v
BIGNT, w BIGINT, PRIMARY KEY (
nok) NOT ENFORCED) PARTITIONED BY (
nop) WITH ('connector' = 'datagen');";
        assert_eq!(lines(declared), [2, 3, 4]);
    }

    #[test]
    fn mistakes_of_any_kind_within_values_and_conditions_are_told() {
        let text = "SELECT
v & 1,
v | 2 FROM u WHERE
v ^ 3 = 1 AND
noy = 2;";
        assert_eq!(lines(text), [2, 3, 4, 5]);
        let text = "SELECT
CAST(v AS BIGNT),
nox FROM u WHERE
NOT v AND
SUBSTRING(s FROM 'x') = 'y' AND
noy = 2;";
        assert_eq!(lines(text), [2, 3, 4, 5, 6]);
    }

    #[test]
    fn a_target_that_is_not_there_hides_nothing() {
        let set = "EXECUTE STATEMENT SET BEGIN INSERT INTO
nosuch SELECT
nov FROM u; INSERT INTO n SELECT
nov FROM u; INSERT INTO n (
now) SELECT
nov FROM u; END;";
        assert_eq!(lines(set), [2, 3, 4, 5, 6]);
    }

    #[test]
    fn a_function_is_wrong_where_it_is_declared() {
        let text = "CREATE FUNCTION f(x
BIGNT, y
INTT) RETURNS BIGINT RETURN
nox + y; SELECT f(v, v) FROM u; CREATE FUNCTION g(x STRING) RETURNS BIGINT RETURN
x + 1; SELECT g(s) FROM u;";
        assert_eq!(lines(text), [2, 3, 4, 5]);
    }

    #[test]
    fn a_hint_hides_nothing() {
        let text = "SELECT
/*+ a */ v,
nox FROM u; SELECT
noy FROM u;";
        assert_eq!(lines(text), [2, 3, 4]);
        let Checked { statements, .. } = check(&Session::new("."), "SELECT /*+ a */ 1;", "x.sql");
        assert_eq!(statements, 1);
    }

    #[test]
    fn the_same_mistake_in_two_queries_is_told_twice() {
        let text = "SELECT
nox FROM u UNION ALL SELECT
nox FROM u;";
        assert_eq!(lines(text), [2, 3]);
    }

    #[test]
    fn what_follows_from_a_mistake_is_not_told() {
        // A computed column of a wrong column; a column outside the keys; a sum of NULL.
        let text = "CREATE TABLE u (v BIGINT, s STRING) WITH ('connector' = 'datagen');
CREATE TABLE b (v AS nov, w AS v + 1, x BIGINT) WITH ('connector' = 'datagen');
SELECT s, COUNT(*) FROM u GROUP BY nos;
SELECT SUM(x) FROM (SELECT nox AS x FROM u);
SELECT nov, nov + 1 FROM u WHERE nov > 1;
CREATE FUNCTION f(x BIGINT RETURNS BIGINT RETURN x;
SELECT f(v) FROM u;";
        assert_eq!(places(text), [(2, 22), (3, 36), (4, 28), (5, 34), (6, 28)]);
    }

    #[test]
    fn what_is_never_closed_hides_no_other_mistake() {
        let text = "CREATE TABLE u (v BIGINT, s STRING) WITH ('connector' = 'datagen');
SELECT w FROM u;
SELECT 'ab;c' AS x, y FROM u;
SELECT 'abc; FROM u;
";
        assert_eq!(places(text), [(2, 8), (3, 21), (4, 8)]);
    }

    #[test]
    fn a_name_that_is_wrong_is_not_what_was_meant() {
        let text = "CREATE TABLE u (v BIGINT) WITH ('connector' = 'datagen');
SELECT nox, v FROM u ORDER BY noy;";
        let Checked { failures, .. } = check(&Session::new("."), text, "x.sql");
        let said: Vec<String> = failures.iter().map(ToString::to_string).collect();
        assert_eq!(said.len(), 2);
        assert!(said.iter().all(|said| !said.contains("did you mean 'nox'")), "{said:?}");
    }

    #[test]
    fn a_text_that_is_right_has_no_mistakes() {
        let text = "CREATE TABLE u (v BIGINT) WITH ('connector' = 'datagen'); SELECT v FROM u;;";
        let Checked { statements, failures, .. } = check(&Session::new("."), text, "x.sql");
        assert!(statements == 2 && failures.is_empty(), "{failures:?}");
    }
}
