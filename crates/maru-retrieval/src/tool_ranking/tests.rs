use serde_json::Value;

use super::*;
use crate::ToolDescription;

const TOOLS: &str = include_str!("../../../../tests/data/toolsearch/tools.json");
const QUESTIONS: &str = include_str!("../../../../tests/data/toolsearch/questions.jsonl");
const OFFICE: &str = include_str!("../../../../tests/data/toolsearch/office.json");

struct Ranked {
    names: Vec<String>,
    index: ToolIndex,
}

impl Ranked {
    fn new(tools: &Value) -> Self {
        let text = |it: &Value| it.as_str().unwrap_or_default().to_owned();
        let tools = tools.as_array().unwrap();
        let terms: Vec<ToolTerms> = tools
            .iter()
            .map(|it| {
                let (name, server) = (text(&it["name"]), text(&it["server"]));
                let description = text(&it["description"]);
                let parameters = it["parameters"].as_array().into_iter().flatten();
                let parameters: Vec<String> = parameters.map(text).collect();
                ToolTerms::of_tool(&ToolDescription {
                    name: &name,
                    description: &description,
                    server: &server,
                    parameters: parameters.iter().map(|it| (it.as_str(), "")).collect(),
                    ..ToolDescription::default()
                })
            })
            .collect();
        Self {
            names: tools.iter().map(|it| text(&it["name"])).collect(),
            index: ToolIndex::build(terms.iter()),
        }
    }

    fn best(&self, query: &str, count: usize) -> Vec<&str> {
        let scores = self.index.score(query);
        let mut order: Vec<usize> = (0..scores.len()).collect();
        order.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]));
        let best = order.into_iter().take(count);
        best.map(|at| self.names[at].as_str()).collect()
    }

    /// How many questions have their tool among the best `count`, and which have not.
    fn recall<'a>(
        &self,
        questions: impl Iterator<Item = (&'a str, &'a str)>,
        count: usize,
    ) -> (f64, Vec<String>) {
        let (mut asked, mut missed) = (0, Vec::new());
        for (question, tool) in questions {
            asked += 1;
            let best = self.best(question, count);
            if !best.contains(&tool) {
                missed.push(format!("{question} → {best:?}, not {tool}"));
            }
        }
        let found = f64::from(asked) - missed.len() as f64;
        (found / f64::from(asked), missed)
    }
}

#[test]
fn questions_of_a_third_party_find_their_tool() {
    let ranked = Ranked::new(&serde_json::from_str(TOOLS).unwrap());
    let questions: Vec<Value> = QUESTIONS
        .lines()
        .map(|it| serde_json::from_str(it).unwrap())
        .collect();
    let pairs = questions
        .iter()
        .map(|it| (it["query"].as_str().unwrap(), it["tool"].as_str().unwrap()));
    let (recall, _) = ranked.recall(pairs, 5);
    println!("recall at 5 without a model: {recall:.3}");
    assert!(recall >= 0.62, "{recall}");
}

#[test]
fn questions_in_english_and_korean_find_their_tool_of_an_office() {
    let office: Value = serde_json::from_str(OFFICE).unwrap();
    let ranked = Ranked::new(&office["tools"]);
    assert_eq!(ranked.names.len(), 66);
    let questions = office["questions"].as_array().unwrap();
    let pairs = questions.iter().map(|it| {
        let text = |name: &str| it[name].as_str().unwrap();
        (text("question"), text("tool"))
    });
    let (recall, missed) = ranked.recall(pairs, 5);
    println!("recall at 5: {recall:.3}, missed: {missed:#?}");
    assert!(recall >= 0.92, "{missed:#?}");
}

#[test]
fn fused_scores_weigh_both_lists_by_their_spread() {
    // The scale of a list does not count.
    assert_eq!(
        fuse_scores(&[1.0, 0.0], &[0.0, 0.1]),
        fuse_scores(&[100.0, 0.0], &[0.0, 0.001])
    );
    let fused = fuse_scores(&[1.0, 0.0], &[0.0, 0.1]);
    assert!(fused[1] > fused[0], "{fused:?}");
    // A list that says nothing changes nothing.
    let fused = fuse_scores(&[3.0, 1.0], &[0.5, 0.5]);
    assert!(fused[0] > fused[1], "{fused:?}");
    assert!(fuse_scores(&[], &[]).is_empty());
}

#[test]
fn vectors_of_different_models_are_not_similar() {
    assert!((cosine_similarity(&[1.0, 0.0], &[2.0, 0.0]) - 1.0).abs() < 1e-6);
    assert!(cosine_similarity(&[1.0, 0.0], &[1.0, 0.0, 0.0]).abs() < f32::EPSILON);
    assert!(cosine_similarity(&[0.0], &[0.0]).abs() < f32::EPSILON);
}
