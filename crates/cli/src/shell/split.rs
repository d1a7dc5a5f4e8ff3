//! Where a statement ends that comes line by line: at a semicolon that stands in no quotes and no
//! comment, and in no statement set that is still open.

/// Lines that are no complete statement yet.
#[derive(Default)]
pub(super) struct Splitter {
    text: String,
    within: Within,
    /// Whether there is something behind the last semicolon that ended a statement.
    open: bool,
    /// The first words behind it, in capitals.
    first: Vec<String>,
    word: String,
    last: String,
    /// Lines that were taken away.
    taken_lines: usize,
}

/// Words that may stand before a statement set.
const BEFORE_SETS: [&str; 4] = ["EXPLAIN", "ANALYZE", "PLAN", "FOR"];
/// Number of first words that identify a statement set.
const FIRST_WORDS: usize = 5;

#[derive(Default, Clone, Copy, PartialEq)]
enum Within {
    #[default]
    Nothing,
    /// Until this quote.
    Quotes(char),
    LineComment,
    /// So many within each other.
    Comment(usize),
}

impl Splitter {
    /// Adds a line. The statements so far, if the line ends with the end of one.
    pub(super) fn take(&mut self, line: &str) -> Option<String> {
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        self.text.push_str(line);
        self.scan(line);
        let complete = self.within == Within::Nothing && !self.open;
        complete.then(|| self.rest()).flatten()
    }

    /// The rest of the text, complete or not.
    pub(super) fn rest(&mut self) -> Option<String> {
        let text = std::mem::take(&mut self.text);
        let taken_lines = self.line() + text.matches('\n').count();
        *self = Splitter { taken_lines, ..Splitter::default() };
        Some(text).filter(|text| !text.is_empty())
    }

    /// A line was used otherwise.
    pub(super) fn skip_line(&mut self) {
        self.taken_lines += 1;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    pub(super) fn bytes(&self) -> usize {
        self.text.len()
    }

    /// The number of the line that comes next, from 1, if nothing waits.
    pub(super) fn line(&self) -> usize {
        self.taken_lines + 1
    }

    /// The number of the line that comes next, from 1, if what waits ends with a line.
    pub(super) fn next_line(&self) -> usize {
        let waiting = if self.is_empty() { 0 } else { self.text.matches('\n').count() + 1 };
        self.line() + waiting
    }

    fn scan(&mut self, line: &str) {
        let mut chars = line.chars().peekable();
        while let Some(c) = chars.next() {
            let next = chars.peek().copied();
            match (self.within, c, next) {
                (Within::Nothing, '-', Some('-')) | (Within::Nothing, '/', Some('*')) => {
                    chars.next();
                    self.end_word();
                    self.within = if c == '-' { Within::LineComment } else { Within::Comment(1) };
                }
                (Within::Nothing, '\'' | '"' | '`', _) => {
                    self.end_word();
                    (self.within, self.open, self.last) = (Within::Quotes(c), true, String::new());
                }
                (Within::Nothing, ';', _) => {
                    self.end_word();
                    if !self.is_open_set() {
                        self.open = false;
                        self.first.clear();
                    }
                    self.last.clear();
                }
                (Within::Nothing, c, _) if c.is_alphanumeric() || c == '_' => {
                    self.open = true;
                    // Words that matter are short.
                    if self.word.len() < 16 {
                        self.word.extend(c.to_uppercase());
                    }
                }
                (Within::Nothing, c, _) => {
                    self.end_word();
                    if !c.is_whitespace() {
                        (self.open, self.last) = (true, String::new());
                    }
                }
                // A line that was pasted may have several.
                (Within::LineComment, '\n', _) => self.within = Within::Nothing,
                // Two of them are one within quotes, and begin quotes again here.
                (Within::Quotes(quote), c, _) if c == quote => self.within = Within::Nothing,
                (Within::Comment(1), '*', Some('/')) => {
                    chars.next();
                    self.within = Within::Nothing;
                }
                (Within::Comment(depth), '*', Some('/')) => {
                    chars.next();
                    self.within = Within::Comment(depth - 1);
                }
                (Within::Comment(depth), '/', Some('*')) => {
                    chars.next();
                    self.within = Within::Comment(depth + 1);
                }
                _ => {}
            }
        }
        self.end_word();
        if self.within == Within::LineComment {
            self.within = Within::Nothing;
        }
    }

    fn end_word(&mut self) {
        if self.word.is_empty() {
            return;
        }
        let word = std::mem::take(&mut self.word);
        if self.first.len() < FIRST_WORDS {
            self.first.push(word.clone());
        }
        self.last = word;
    }

    /// Whether the statement is a statement set whose END has not come.
    fn is_open_set(&self) -> bool {
        let words = self.first.iter().map(String::as_str);
        let mut words = words.skip_while(|word| BEFORE_SETS.contains(word));
        let begins = matches!(
            (words.next(), words.next()),
            (Some("EXECUTE" | "BEGIN"), Some("STATEMENT")) | (Some("STATEMENT"), Some("SET"))
        );
        begins && self.last != "END"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The texts that come out of lines.
    fn split(lines: &[&str]) -> Vec<String> {
        let mut splitter = Splitter::default();
        lines.iter().filter_map(|line| splitter.take(line)).collect()
    }

    #[test]
    fn a_statement_ends_at_its_semicolon() {
        assert_eq!(split(&["SELECT 1;"]), ["SELECT 1;"]);
        assert_eq!(split(&["SELECT", "1", ";"]), ["SELECT\n1\n;"]);
        assert_eq!(split(&["SELECT 1; SELECT", "2;"]), ["SELECT 1; SELECT\n2;"]);
        assert_eq!(split(&["SELECT 1; -- done"]), ["SELECT 1; -- done"]);
        assert!(split(&["SELECT 1"]).is_empty());
    }

    #[test]
    fn quotes_and_comments_hide_semicolons() {
        assert!(split(&["SELECT ';"]).is_empty());
        assert_eq!(split(&["SELECT ';", "';"]), ["SELECT ';\n';"]);
        assert_eq!(split(&["SELECT 'it''s;' AS `a;b`;"]), ["SELECT 'it''s;' AS `a;b`;"]);
        assert!(split(&["SELECT 1 -- ;"]).is_empty());
        assert_eq!(split(&["SELECT 1 -- '", ";"]), ["SELECT 1 -- '\n;"]);
        assert_eq!(split(&["SELECT 1 -- ;\n, 2;"]), ["SELECT 1 -- ;\n, 2;"]);
        assert!(split(&["SELECT 1 /* ;", "/* ; */ ;"]).is_empty());
        assert_eq!(split(&["/* ; */ SELECT 1;"]), ["/* ; */ SELECT 1;"]);
    }

    #[test]
    fn a_statement_set_ends_with_end() {
        let set = ["EXECUTE STATEMENT SET BEGIN", "INSERT INTO a SELECT 1;", "END;"];
        assert_eq!(split(&set), [set.join("\n")]);
        let set = ["begin statement set;", "INSERT INTO a SELECT b AS end_of FROM c;", "end;"];
        assert_eq!(split(&set), [set.join("\n")]);
        for explain in ["EXPLAIN", "EXPLAIN PLAN FOR", "EXPLAIN ANALYZE EXECUTE"] {
            let first = format!("{explain} STATEMENT SET BEGIN INSERT INTO a SELECT 1;");
            assert_eq!(split(&[&first, "END;"]), [first + "\nEND;"]);
        }
    }

    #[test]
    fn lines_are_counted() {
        let mut splitter = Splitter::default();
        assert_eq!(splitter.line(), 1);
        splitter.take("SELECT");
        assert_eq!((splitter.line(), splitter.next_line()), (1, 2));
        splitter.take("1;");
        assert_eq!(splitter.next_line(), 3);
        assert_eq!(splitter.line(), 3);
        // A blank line is no statement.
        assert_eq!(splitter.take(""), None);
        assert!(splitter.is_empty());
    }
}
