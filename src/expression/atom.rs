//! The parser's part for names, literals, brackets and what follows them.

use std::sync::Arc;

use super::{
    fault::{Result, syntax},
    literal::Literal,
    node::{
        Act, Arguments, Clause, Comprehension, Constant, Form, Lambda, Makes, Node, Piece, Step,
    },
    parser::Parser,
    template,
    token::{Sort, Template},
    value::Text,
};

/// Words that begin or join something else.
const KEYWORDS: [&str; 32] = [
    "and", "as", "assert", "async", "await", "break", "class", "continue", "def", "del", "elif",
    "else", "except", "finally", "for", "from", "global", "if", "import", "in", "is", "lambda",
    "nonlocal", "not", "or", "pass", "raise", "return", "try", "while", "with", "yield",
];

/// As many `for` as Python allows in one comprehension.
const MAX_CLAUSES: usize = 20;

impl Parser<'_> {
    /// An atom with its calls, indices and attributes.
    pub(super) fn postfix(&mut self) -> Result<Node> {
        let base = self.atom()?;
        let mut steps = Vec::new();
        loop {
            let at = self.at();
            let act = if self.accept("(") {
                Act::Call(Box::new(self.down(Self::arguments)?))
            } else if self.accept("[") {
                self.down(Self::index)?
            } else if self.accept(".") {
                Act::Attribute(self.attribute()?)
            } else {
                break;
            };
            steps.push(Step { at, act });
        }
        if steps.is_empty() {
            return Ok(base);
        }
        Ok(Node::new(base.at, Form::Postfix(Box::new(base), steps)))
    }

    /// `lambda a, b: …`
    pub(super) fn lambda(&mut self) -> Result<Node> {
        let at = self.take().at;
        let mut names = Vec::new();
        while !self.accept(":") {
            names.push(self.name()?);
            if !self.accept(",") {
                self.expect(":")?;
                break;
            }
        }
        let body = self.expression()?;
        let lambda = Lambda {
            names,
            slots: Vec::new(),
            body,
        };
        Ok(Node::new(at, Form::Lambda(Arc::new(lambda))))
    }

    /// A name that may be bound.
    pub(super) fn name(&mut self) -> Result<String> {
        let token = self.take();
        match token.sort {
            Sort::Name(name) => check_name(name).map_err(|it| it.at(token.at)),
            Sort::Operator("*" | "**") => {
                Err(syntax("a lambda takes plain parameters").at(token.at))
            }
            _ => Err(syntax("expected a name").at(token.at)),
        }
    }

    fn attribute(&mut self) -> Result<String> {
        let token = self.take();
        match token.sort {
            Sort::Name(name) if name.starts_with('_') => Err(syntax(format!(
                "'{name}': names that begin with an underscore are closed"
            ))
            .at(token.at)),
            Sort::Name(name) => Ok(name.to_owned()),
            _ => Err(syntax("expected a name after '.'").at(token.at)),
        }
    }

    fn atom(&mut self) -> Result<Node> {
        let at = self.at();
        let form = match self.peek().sort.clone() {
            Sort::Operator("(") => return self.down(Self::parentheses),
            Sort::Operator("[") => return self.down(Self::list),
            Sort::Operator("{") => return self.down(Self::braces),
            Sort::Operator("...") => return Err(syntax("'...' is not a value here").at(at)),
            Sort::Literal(Literal::Text(_)) | Sort::Template(_) => return self.texts(),
            Sort::Literal(literal) => Form::Constant(constant(literal)),
            Sort::Name(name) => self.word(name)?,
            _ => return Err(self.unexpected("expected an expression")),
        };
        self.take();
        Ok(Node::new(at, form))
    }

    fn word(&self, name: &str) -> Result<Form> {
        Ok(Form::Constant(match name {
            "True" => Constant::Bool(true),
            "False" => Constant::Bool(false),
            "None" => Constant::None,
            _ if KEYWORDS.contains(&name) => {
                return Err(self.unexpected("expected an expression"));
            }
            _ => {
                return check_name(name)
                    .map(Form::Name)
                    .map_err(|it| it.at(self.at()));
            }
        }))
    }

    /// Texts beside each other are one.
    fn texts(&mut self) -> Result<Node> {
        let at = self.at();
        let mut pieces: Vec<Piece> = Vec::new();
        let mut templates = false;
        loop {
            match self.peek().sort.clone() {
                Sort::Literal(Literal::Text(text)) => pieces.push(Piece::Text(text)),
                Sort::Template(found) => {
                    templates = true;
                    pieces.extend(self.template(found)?);
                }
                _ => break,
            }
            self.take();
        }
        if templates {
            return Ok(Node::new(at, Form::Template(pieces)));
        }
        let whole: String = pieces.into_iter().map(only_text).collect();
        let text = Constant::Text(Arc::new(Text::new(whole)));
        Ok(Node::new(at, Form::Constant(text)))
    }

    fn template(&self, found: Template<'_>) -> Result<Vec<Piece>> {
        template::pieces(found, self.depth() + 1)
    }

    fn parentheses(&mut self) -> Result<Node> {
        let at = self.take().at;
        if self.accept(")") {
            return Ok(Node::new(at, Form::Tuple(Vec::new())));
        }
        let first = self.starred()?;
        if self.sees_word("for") {
            return self.comprehension(at, Makes::Generator, None, first);
        }
        if self.sees(",") {
            let items = self.rest(first, ")")?;
            return Ok(Node::new(at, Form::Tuple(items)));
        }
        self.refuse_walrus()?;
        self.expect(")")?;
        let node = plain(first)?;
        // So that `(a < b) < c` does not become `a < b < c`.
        if matches!(node.form, Form::Compare(..)) {
            return Ok(Node::new(at, Form::Or(vec![node])));
        }
        Ok(node)
    }

    fn list(&mut self) -> Result<Node> {
        let at = self.take().at;
        if self.accept("]") {
            return Ok(Node::new(at, Form::List(Vec::new())));
        }
        let first = self.starred()?;
        if self.sees_word("for") {
            return self.comprehension(at, Makes::List, None, first);
        }
        let items = self.rest(first, "]")?;
        Ok(Node::new(at, Form::List(items)))
    }

    fn braces(&mut self) -> Result<Node> {
        let at = self.take().at;
        if self.accept("}") {
            return Ok(Node::new(at, Form::Dict(Vec::new())));
        }
        if self.sees("**") {
            return self.dict(at, Vec::new());
        }
        let first = self.starred()?;
        if !self.accept(":") {
            if self.sees_word("for") {
                return self.comprehension(at, Makes::Set, None, first);
            }
            let items = self.rest(first, "}")?;
            return Ok(Node::new(at, Form::Set(items)));
        }
        let key = plain(first)?;
        let value = self.expression()?;
        if self.sees_word("for") {
            return self.comprehension(at, Makes::Dict, Some(key), value);
        }
        if !self.accept(",") {
            self.expect("}")?;
            return Ok(Node::new(at, Form::Dict(vec![(Some(key), value)])));
        }
        self.dict(at, vec![(Some(key), value)])
    }

    fn dict(&mut self, at: u32, mut entries: Vec<(Option<Node>, Node)>) -> Result<Node> {
        while !self.accept("}") {
            if self.accept("**") {
                entries.push((None, self.bitwise()?));
            } else {
                let key = self.expression()?;
                self.expect(":")?;
                entries.push((Some(key), self.expression()?));
            }
            if !self.accept(",") {
                self.expect("}")?;
                break;
            }
        }
        Ok(Node::new(at, Form::Dict(entries)))
    }

    /// `x` or `*x`
    pub(super) fn starred(&mut self) -> Result<Node> {
        let at = self.at();
        if !self.accept("*") {
            return self.expression();
        }
        let inner = self.bitwise()?;
        Ok(Node::new(at, Form::Star(Box::new(inner))))
    }

    /// The items after `first`, up to `end`.
    fn rest(&mut self, first: Node, end: &str) -> Result<Vec<Node>> {
        let mut items = vec![first];
        while !self.accept(end) {
            self.refuse_walrus()?;
            self.expect(",")?;
            if self.accept(end) {
                break;
            }
            items.push(self.starred()?);
        }
        Ok(items)
    }

    pub(super) fn refuse_walrus(&self) -> Result<()> {
        match self.sees(":=") {
            true => Err(syntax("':=' is not offered; assign on a line before").at(self.at())),
            false => Ok(()),
        }
    }

    /// What follows the item of a comprehension, up to its closing bracket.
    fn comprehension(
        &mut self,
        at: u32,
        makes: Makes,
        key: Option<Node>,
        item: Node,
    ) -> Result<Node> {
        let form = Comprehension {
            makes,
            key,
            item: plain(item)?,
            clauses: self.clauses()?,
        };
        self.expect(match makes {
            Makes::List => "]",
            Makes::Set | Makes::Dict => "}",
            Makes::Generator => ")",
        })?;
        Ok(Node::new(at, Form::Comprehension(Arc::new(form))))
    }

    fn clauses(&mut self) -> Result<Vec<Clause>> {
        let mut clauses = Vec::new();
        while self.accept_word("for") {
            let target = self.targets()?;
            if !self.accept_word("in") {
                return Err(self.unexpected("expected 'in'"));
            }
            let source = self.disjunction()?;
            let mut conditions = Vec::new();
            while self.accept_word("if") {
                conditions.push(self.disjunction()?);
            }
            if clauses.len() >= MAX_CLAUSES {
                return Err(syntax("too many statically nested blocks").at(self.at()));
            }
            clauses.push(Clause {
                target,
                source,
                conditions,
            });
        }
        Ok(clauses)
    }

    fn index(&mut self) -> Result<Act> {
        let mut parts = [None, None, None];
        let mut colons = 0;
        while !self.accept("]") {
            if self.accept(":") && colons < 2 {
                colons += 1;
            } else if parts[colons].is_none() {
                parts[colons] = Some(self.expression()?);
            } else {
                return Err(self.unexpected("expected ']'"));
            }
        }
        match (colons, parts) {
            (0, [Some(index), ..]) => Ok(Act::Index(index)),
            (0, _) => Err(syntax("an index is missing").at(self.at())),
            (_, parts) => Ok(Act::Slice(Box::new(parts))),
        }
    }

    fn arguments(&mut self) -> Result<Arguments> {
        let mut arguments = Arguments::default();
        while !self.accept(")") {
            self.argument(&mut arguments)?;
            self.refuse_walrus()?;
            if !self.accept(",") {
                self.expect(")")?;
                break;
            }
        }
        Ok(arguments)
    }

    fn argument(&mut self, arguments: &mut Arguments) -> Result<()> {
        let at = self.at();
        if self.accept("**") {
            let value = self.expression()?;
            arguments.named.push((None, value));
            return Ok(());
        }
        if *self.peek_second() == Sort::Operator("=") {
            let name = self.name()?;
            self.take();
            if arguments
                .named
                .iter()
                .any(|it| it.0.as_ref() == Some(&name))
            {
                return Err(syntax(format!("keyword argument repeated: {name}")).at(at));
            }
            let value = self.expression()?;
            arguments.named.push((Some(name), value));
            return Ok(());
        }
        let value = self.starred()?;
        if !arguments.named.is_empty() {
            return Err(syntax("positional argument follows keyword argument").at(at));
        }
        let value = match self.sees_word("for") {
            true => self.sole_generator(at, value)?,
            false => value,
        };
        arguments.positional.push(value);
        Ok(())
    }

    /// `sum(x for x in xs)`: the call's brackets are the generator's.
    fn sole_generator(&mut self, at: u32, item: Node) -> Result<Node> {
        let clauses = self.clauses()?;
        Ok(Node::new(
            at,
            Form::Comprehension(Arc::new(Comprehension {
                makes: Makes::Generator,
                key: None,
                item: plain(item)?,
                clauses,
            })),
        ))
    }
}

pub(super) fn plain(node: Node) -> Result<Node> {
    match node.form {
        Form::Star(_) => Err(syntax("can't use starred expression here").at(node.at)),
        _ => Ok(node),
    }
}

fn check_name(name: &str) -> Result<String> {
    if name.starts_with('_') && name != "_" {
        return Err(syntax(format!(
            "'{name}': names that begin with an underscore are closed"
        )));
    }
    if KEYWORDS.contains(&name) || matches!(name, "True" | "False" | "None") {
        return Err(syntax(format!("'{name}' is not a name")));
    }
    Ok(name.to_owned())
}

fn constant(literal: Literal) -> Constant {
    match literal {
        Literal::Int(it) => Constant::Int(it),
        Literal::Big(it) => Constant::Big(Arc::new(it)),
        Literal::Float(it) => Constant::Float(it),
        Literal::Text(it) => Constant::Text(Arc::new(Text::new(it))),
    }
}

fn only_text(piece: Piece) -> String {
    match piece {
        Piece::Text(text) => text,
        Piece::Value(_) => String::new(),
    }
}
