//! Numbers of things in messages.

/// `0 keys`, `1 key`, `2 keys`; `what` is one of them.
pub fn counted(number: u64, what: &str) -> String {
    format!("{number} {}", plural(number, what))
}

/// The word for so many of `what`: `key` for one, `keys` otherwise.
pub fn plural(number: u64, what: &str) -> String {
    let s = if number == 1 { "" } else { "s" };
    format!("{what}{s}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_singular() {
        let all = [0, 1, 2].map(|number| counted(number, "key"));
        assert_eq!(all, ["0 keys", "1 key", "2 keys"]);
    }
}
