//! The parser's part for lines: one expression, or assignments that end in
//! `result = …`.

use super::{
    atom::plain,
    fault::{Result, Trouble, syntax},
    node::{Form, Node, Statement, Target},
    parser::{Parser, binary},
    token::Sort,
};

/// Statements of Python that are not of this language, and what to do instead.
const REFUSED: [(&str, &str); 24] = [
    (
        "import",
        "nothing can be imported; math, date, datetime and timedelta are there already",
    ),
    (
        "from",
        "nothing can be imported; math, date, datetime and timedelta are there already",
    ),
    ("for", "write a comprehension: [… for x in …]"),
    ("while", "write a comprehension: [… for x in …]"),
    ("if", "write a conditional expression: … if … else …"),
    ("def", "write the expression itself"),
    ("class", "write the expression itself"),
    ("async", "write the expression itself"),
    ("await", "write the expression itself"),
    ("return", "write `result = …`"),
    ("yield", "write a comprehension: [… for x in …]"),
    ("try", "test the value first: … if … else …"),
    ("raise", "faults come from the expression itself"),
    ("assert", "faults come from the expression itself"),
    ("with", "nothing can be opened"),
    ("del", "values do not change"),
    ("global", "there is one scope"),
    ("nonlocal", "there is one scope"),
    ("pass", "write an expression"),
    ("break", "write a comprehension: [… for x in … if …]"),
    ("continue", "write a comprehension: [… for x in … if …]"),
    ("match", "write a conditional expression: … if … else …"),
    ("except", "test the value first: … if … else …"),
    ("else", "write a conditional expression: … if … else …"),
];
const ASSIGNS: &str = "a definition of several lines assigns names and ends in `result = …`";

impl Parser<'_> {
    /// The whole source.
    pub(super) fn program(&mut self) -> Result<Vec<Statement>> {
        let mut statements = Vec::new();
        loop {
            while self.peek().sort == Sort::Newline {
                self.take();
            }
            if self.peek().sort == Sort::End {
                break;
            }
            statements.push(self.statement()?);
            if !matches!(self.peek().sort, Sort::Newline | Sort::End) {
                return Err(self.unexpected("expected the end of the line"));
            }
        }
        check_shape(&statements)?;
        Ok(statements)
    }

    /// `a`, `a, b`, `(a, b), *c`, as after `for` and before `=`.
    pub(super) fn targets(&mut self) -> Result<Target> {
        let first = self.target_item()?;
        if !self.sees(",") && !matches!(first.form, Form::Star(_)) {
            return target(first);
        }
        let mut items = vec![first];
        while self.accept(",") {
            if self.sees_word("in") {
                break;
            }
            items.push(self.target_item()?);
        }
        several(items)
    }

    fn target_item(&mut self) -> Result<Node> {
        let at = self.at();
        if self.accept("*") {
            let inner = self.postfix()?;
            return Ok(Node::new(at, Form::Star(Box::new(inner))));
        }
        self.postfix()
    }

    fn statement(&mut self) -> Result<Statement> {
        self.refuse_keyword()?;
        let at = self.at();
        let left = self.tuple()?;
        self.refuse_walrus()?;
        if self.accept("=") {
            let value = self.tuple()?;
            if self.sees("=") {
                return Err(syntax("assign one name at a time").at(self.at()));
            }
            let target = Some(target(left)?);
            return Ok(Statement { at, target, value });
        }
        if let Some(operator) = self.augmented() {
            let place = self.take().at;
            let value = self.tuple()?;
            let target = Some(target(left.clone())?);
            let value = Form::Chain(Box::new(left), vec![(operator, place, value)]);
            let value = Node::new(at, value);
            return Ok(Statement { at, target, value });
        }
        if self.sees(":") {
            return Err(self.unexpected("expected the end of the line"));
        }
        let target = None;
        Ok(Statement {
            at,
            target,
            value: plain(left)?,
        })
    }

    fn refuse_keyword(&self) -> Result<()> {
        let Sort::Name(word) = self.peek().sort else {
            return Ok(());
        };
        // `match` is an ordinary name, unless something else than a use follows.
        if word == "match" && !matches!(self.peek_second(), Sort::Name(_) | Sort::Literal(_)) {
            return Ok(());
        }
        match REFUSED.iter().find(|(refused, _)| *refused == word) {
            Some((_, hint)) => {
                Err(syntax(format!("'{word}' is not offered; {hint}")).at(self.at()))
            }
            None => Ok(()),
        }
    }

    /// An expression, or several with commas.
    fn tuple(&mut self) -> Result<Node> {
        let at = self.at();
        let first = self.starred()?;
        if !self.sees(",") {
            return Ok(first);
        }
        let mut items = vec![first];
        while self.accept(",") {
            if matches!(
                self.peek().sort,
                Sort::Newline | Sort::End | Sort::Operator("=")
            ) {
                break;
            }
            items.push(self.starred()?);
        }
        Ok(Node::new(at, Form::Tuple(items)))
    }

    fn augmented(&self) -> Option<super::node::Binary> {
        match self.peek().sort {
            Sort::Operator(it) if it != "==" => binary(it.strip_suffix('=')?),
            _ => None,
        }
    }
}

fn check_shape(statements: &[Statement]) -> Result<()> {
    let Some((last, before)) = statements.split_last() else {
        return Err(syntax("the definition is empty").at(0));
    };
    if let Some(stray) = before.iter().find(|it| it.target.is_none()) {
        return Err(syntax(ASSIGNS).at(stray.at));
    }
    let result = matches!(&last.target, Some(Target::Name(name, _)) if name == "result");
    match result || (before.is_empty() && last.target.is_none()) {
        true => Ok(()),
        false => Err(syntax(ASSIGNS).at(last.at)),
    }
}

fn target(node: Node) -> Result<Target> {
    match node.form {
        Form::Name(name) => Ok(Target::Name(name, node.at)),
        Form::Tuple(items) | Form::List(items) => several(items),
        Form::Postfix(..) => Err(syntax(
            "values do not change; make a new one, as in {**record, 'key': value}",
        )
        .at(node.at)),
        _ => Err(no_target(node.at)),
    }
}

fn several(items: Vec<Node>) -> Result<Target> {
    let mut rest = None;
    let mut targets = Vec::new();
    for (at, item) in items.into_iter().enumerate() {
        let place = item.at;
        let item = match item.form {
            Form::Star(_) if rest.is_some() => {
                return Err(syntax("multiple starred expressions in assignment").at(place));
            }
            Form::Star(inner) => {
                rest = Some(at);
                *inner
            }
            form => Node::new(place, form),
        };
        targets.push(target(item)?);
    }
    Ok(Target::Several(targets, rest))
}

fn no_target(at: u32) -> Trouble {
    syntax("cannot assign to an expression; assign to a name").at(at)
}
