//! Types within a type as SQL writes it: `BIGINT` in `ROW<id BIGINT, tags ARRAY<STRING>>`.

/// The type at `path` within `sql_type`, and all of it with another in its place. A path is as
/// messages have it: `.name` is a field of a ROW, `[3]` an element of an ARRAY, `['key']` the value
/// of a MAP. `None` if nothing is there.
pub(crate) fn at<T>(
    sql_type: &str,
    path: &str,
    other: &dyn Fn(&str) -> Option<(String, T)>,
) -> Option<(String, T)> {
    if path.is_empty() {
        let (within, found) = other(sql_type)?;
        return Some((within, found));
    }
    let (kind, inner) = sql_type.strip_suffix('>')?.split_once('<')?;
    let mut members: Vec<String> = members(inner).into_iter().map(str::to_string).collect();
    let (member, front, rest) = match kind {
        "ARRAY" => (0, String::new(), path.strip_prefix('[')?.split_once(']')?.1),
        "MAP" => (1, String::new(), path.strip_prefix("['")?.split_once("']")?.1),
        "ROW" => {
            let path = path.strip_prefix('.')?;
            // A name may be a prefix of another name.
            let fields = members.iter().enumerate().filter_map(|(at, member)| {
                let (front, name) = field(member)?;
                let rest = path.strip_prefix(name.as_str())?;
                let ends = rest.is_empty() || rest.starts_with(['.', '[']);
                ends.then(|| (at, front.to_string(), rest))
            });
            fields.max_by_key(|(_, _, rest)| path.len() - rest.len())?
        }
        _ => return None,
    };
    let text = members.get_mut(member)?;
    let (sql_type, null) = match text.get(front.len()..)?.strip_suffix(" NOT NULL") {
        Some(sql_type) => (sql_type, " NOT NULL"),
        None => (text.get(front.len()..)?, ""),
    };
    let (within, found) = at(sql_type, rest, other)?;
    *text = format!("{front}{within}{null}");
    Some((format!("{kind}<{}>", members.join(", ")), found))
}

/// Beginning of a member of a ROW, up to its type; and the member's name.
fn field(member: &str) -> Option<(&str, String)> {
    let name_end = match member.strip_prefix('`') {
        None => member.find(' ')?,
        Some(rest) => {
            let mut end = 0;
            loop {
                end += rest.get(end..)?.find('`')? + 1;
                match rest.get(end..)?.strip_prefix('`') {
                    Some(_) => end += 1,
                    None => break end + 1,
                }
            }
        }
    };
    let name = member.get(..name_end)?;
    let plain = name.strip_prefix('`').and_then(|name| name.strip_suffix('`'));
    let name = plain.map_or_else(|| name.to_string(), |name| name.replace("``", "`"));
    Some((member.get(..name_end + 1)?, name))
}

/// The parts between commas, but for those within parts.
fn members(text: &str) -> Vec<&str> {
    let (mut members, mut depth, mut quoted, mut start) = (Vec::new(), 0usize, false, 0);
    for (at, character) in text.char_indices() {
        match character {
            '`' => quoted = !quoted,
            _ if quoted => {}
            '<' | '(' => depth += 1,
            '>' | ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                members.extend(text.get(start..at).map(str::trim));
                start = at + 1;
            }
            _ => {}
        }
    }
    members.extend(text.get(start..).map(str::trim));
    members
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_is_found_by_its_path() {
        let text = "ROW<a BIGINT, `b.c` ARRAY<DECIMAL(5, 2)>, `b` MAP<STRING, INT NOT NULL>>";
        for (path, found, all) in [
            (".a", "BIGINT", text.replace("a BIGINT", "a X")),
            (".b.c[3]", "DECIMAL(5, 2)", text.replace("DECIMAL(5, 2)", "X")),
            (".b['k']", "INT", text.replace("INT NOT NULL", "X NOT NULL")),
            (".b.c", "ARRAY<DECIMAL(5, 2)>", text.replace("ARRAY<DECIMAL(5, 2)>", "X")),
        ] {
            let other = |sql_type: &str| Some(("X".to_string(), sql_type.to_string()));
            assert_eq!(at(text, path, &other), Some((all, found.to_string())), "{path}");
        }
        let other = |_: &str| Some((String::new(), ()));
        for nowhere in [".c", "[1]", "['k']", ".ab", ".a.b"] {
            assert_eq!(at(text, nowhere, &other), None, "{nowhere}");
        }
    }
}
