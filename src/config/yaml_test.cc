#include "config/yaml.h"

#include <cstdio>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kvr::config {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

Node Parsed(std::string_view text) {
  auto node = ParseYaml(text, "a.yaml");
  EXPECT_TRUE(node) << node.error().message;
  return node ? *node : Node();
}

std::string ErrorOf(std::string_view text) {
  const auto node = ParseYaml(text, "a.yaml");
  EXPECT_FALSE(node) << text;
  return node ? "" : node.error().message;
}

TEST(ParseYaml, KeepsKindPathAndLine) {
  const Node root = Parsed(
      "server:\n"
      "  port: 8080\n"
      "  name: \"8080\"\n"
      "workers:\n"
      "  - url: http://a\n"
      "    ranks: [0, 1]\n"
      "  - url: http://b\n"
      "nothing:\n"
      "tilde: ~\n"
      "empty: ''\n");
  ASSERT_EQ(root.kind, Node::Kind::kMap);
  const Node* port = root.Find("server")->Find("port");
  EXPECT_EQ(port->text, "8080");
  EXPECT_FALSE(port->quoted);
  EXPECT_EQ(port->path, "server.port");
  EXPECT_EQ(port->where, "a.yaml:2");
  EXPECT_TRUE(root.Find("server")->Find("name")->quoted);
  const Node* workers = root.Find("workers");
  ASSERT_EQ(workers->kind, Node::Kind::kList);
  ASSERT_EQ(workers->items.size(), 2u);
  EXPECT_EQ(workers->items[0].path, "workers[0]");
  EXPECT_EQ(workers->items[0].Find("ranks")->items[1].path, "workers[0].ranks[1]");
  EXPECT_EQ(workers->items[1].Find("url")->text, "http://b");
  EXPECT_EQ(workers->items[1].Find("url")->where, "a.yaml:7");
  EXPECT_EQ(root.Find("nothing")->kind, Node::Kind::kNull);
  EXPECT_EQ(root.Find("tilde")->kind, Node::Kind::kNull);
  EXPECT_EQ(root.Find("empty")->kind, Node::Kind::kScalar);
  EXPECT_EQ(root.Find("absent"), nullptr);
}

TEST(ParseYaml, NothingIsAnEmptyMap) {
  for (const std::string_view text : {"", "\n", "# only a comment\n", "---\n", "~\n", "{}"}) {
    const Node root = Parsed(text);
    EXPECT_EQ(root.kind, Node::Kind::kMap) << text;
    EXPECT_TRUE(root.fields.empty()) << text;
    EXPECT_THAT(root.where, StartsWith("a.yaml:")) << text;
  }
}

TEST(ParseYaml, Refuses) {
  struct Row {
    std::string text;
    std::string says;
  };
  for (const Row& row : {
           Row{"a: 1\nb: 2\na: 3\n", "a.yaml:3: duplicate key `a`, first at a.yaml:1; keep one"},
           Row{"s:\n  k: 1\n  k: 1\n", "a.yaml:3: duplicate key `k`, first at a.yaml:2"},
           Row{"a: &x 1\nb: *x\n", "a.yaml:2: aliases are not read; write the value out"},
           Row{"a: &x [*x]\n", "a.yaml:1: aliases are not read"},
           Row{"? [1, 2]\n: 3\n", "a.yaml:1: a key must be a plain text"},
           Row{"a: 1\n---\nb: 2\n", "more than one document"},
           Row{"a: [1, 2\n", "a.yaml:"},
           Row{"a: 1\n  b: 2\n", "a.yaml:2: "},
           Row{"a: \"x\n", "a.yaml:"},
           Row{"a: 'x\nb: 1\n", "a.yaml:"},
           Row{"a: *nowhere\n", "a.yaml:1: "},
       }) {
    EXPECT_THAT(ErrorOf(row.text), HasSubstr(row.says)) << row.text;
  }
}

TEST(ParseYaml, ABlockKeepsItsLineFeed) {
  EXPECT_EQ(Parsed("a: |\n  x\n  y\n").Find("a")->text, "x\ny\n");
  EXPECT_EQ(Parsed("a: |-\n  x\n").Find("a")->text, "x");
  EXPECT_EQ(Parsed("a: b # c").Find("a")->text, "b");
}

TEST(ParseYaml, AMissingValueStandsAtItsKey) {
  EXPECT_EQ(Parsed("a:\n\n\nb: 1\n").Find("a")->where, "a.yaml:1");
}

TEST(ParseYaml, DeepNestingIsAnErrorNotACrash) {
  EXPECT_THAT(ErrorOf(std::string(100'000, '[')), StartsWith("a.yaml:"));
  EXPECT_THAT(ErrorOf(std::string(100'000, '{')), StartsWith("a.yaml:"));
}

TEST(ParseYaml, TooLongIsRefused) {
  const auto node = ParseYaml(std::string(kYamlBytesMax + 1, '#'), "a.yaml");
  ASSERT_FALSE(node);
  EXPECT_EQ(node.error().code, ErrorCode::kTooLarge);
}

TEST(ReadYamlFile, ReadsAFileOrNamesIt) {
  const std::string path = testing::TempDir() + "/kvr_read_yaml_file_test.yaml";
  std::ofstream(path) << "a:\n  - x\n  - 2\n";
  const auto node = ReadYamlFile(path);
  std::remove(path.c_str());
  ASSERT_TRUE(node) << node.error().message;
  EXPECT_THAT(*AsStrings(*node->Find("a")), ElementsAre("x", "2"));
  EXPECT_EQ(node->Find("a")->where, path + ":2");

  for (const std::string& missing : {path, testing::TempDir()}) {
    const auto failed = ReadYamlFile(missing);
    ASSERT_FALSE(failed);
    EXPECT_EQ(failed.error().code, ErrorCode::kIo);
    EXPECT_THAT(failed.error().message, HasSubstr(missing));
  }
}

TEST(Values, RightAndWrong) {
  const auto value = [](std::string_view yaml) {
    return *Parsed("v: " + std::string(yaml) + "\n").Find("v");
  };
  EXPECT_EQ(*AsBool(value("true")), true);
  EXPECT_EQ(*AsBool(value("false")), false);
  EXPECT_EQ(*AsSigned(value("-3")), -3);
  EXPECT_EQ(*AsUnsigned(value("18446744073709551615")), 18446744073709551615u);
  EXPECT_EQ(*AsDouble(value("1e-3")), 1e-3);
  EXPECT_EQ(*AsDouble(value("2")), 2.0);
  EXPECT_EQ(*AsString(value("12")), "12");
  EXPECT_EQ(*AsString(value("''")), "");
  EXPECT_TRUE(AsStrings(value("[]"))->empty());
  EXPECT_EQ(*AsMillis(value("250")), Millis{250});
  const std::string_view names[] = {"red", "green"};
  EXPECT_EQ(*AsName(value("green"), names), 1u);

  struct Row {
    Result<void> result;
    std::string says;
  };
  const auto drop = [](auto result) -> Result<void> {
    KVR_TRY([[maybe_unused]] const auto ignored, std::move(result));
    return {};
  };
  for (const Row& row : {
           Row{drop(AsBool(value("yes"))), "a.yaml:1: v must be true or false, got `yes`"},
           Row{drop(AsBool(value("\"true\""))), "must be true or false, got the text \"true\""},
           Row{drop(AsBool(value(""))), "v has no value; give one, or remove the key"},
           Row{drop(AsSigned(value("1.5"))), "v must be a whole number, got `1.5`"},
           Row{drop(AsSigned(value("'1'"))), "must be a whole number, got the text \"1\""},
           Row{drop(AsSigned(value("9"), 1, 8)), "must be a whole number of 1 to 8, got `9`"},
           Row{drop(AsUnsigned(value("-1"))), "must be a whole number of at least 0, got `-1`"},
           Row{drop(AsUnsigned(value("0"), 1)), "must be a whole number of at least 1, got `0`"},
           Row{drop(AsUnsigned(value("18446744073709551616"))), "must be a whole number"},
           Row{drop(AsUnsigned(value("+1"))), "must be a whole number"},
           Row{drop(AsUnsigned(value("0x10"))), "must be a whole number"},
           Row{drop(AsUnsigned(value("1_000"))), "must be a whole number"},
           Row{drop(AsDouble(value("nan"))), "must be a number, got `nan`"},
           Row{drop(AsDouble(value(".inf"))), "must be a number"},
           Row{drop(AsDouble(value("inf"))), "must be a number"},
           Row{drop(AsDouble(value("1e999"))), "must be a number"},
           Row{drop(AsDouble(value("2"), 0, 1)), "must be a number of 0 to 1, got `2`"},
           Row{drop(AsDouble(value("-2"), 0)), "must be a number of at least 0, got `-2`"},
           Row{drop(AsString(value("[a]"))), "must be a text, got a list"},
           Row{drop(AsString(value("{a: b}"))), "must be a text, got a map"},
           Row{drop(AsStrings(value("a"))), "must be a list of texts, got `a`"},
           Row{drop(AsStrings(value("[a, [b]]"))), "v[1] must be a text, got a list"},
           Row{drop(AsMillis(value("5s"))), "must be a whole number of at least 0, got `5s`"},
           Row{drop(AsMillis(value("9"), Millis{1}, Millis{8})), "of 1 to 8, got `9`"},
           Row{drop(AsName(value("blue"), names)), "must be one of red, green, got `blue`"},
       }) {
    ASSERT_FALSE(row.result) << row.says;
    EXPECT_EQ(row.result.error().code, ErrorCode::kUnprocessable);
    EXPECT_THAT(row.result.error().message, HasSubstr(row.says));
  }
}

struct WorkerSpec {
  std::string url;
  std::uint32_t ranks = 1;
  bool spare = false;
  double weight = 1;
  std::int32_t bias = 0;
  Millis timeout{5};
  std::vector<std::string> labels;
};

Result<WorkerSpec> ReadSpec(const Node& node) {
  WorkerSpec spec;
  Fields fields(node);
  fields.Required("url", spec.url);
  fields.Optional("ranks", spec.ranks, 1u, 1024u);
  fields.Optional("spare", spec.spare);
  fields.Optional("weight", spec.weight, 0.0);
  fields.Optional("bias", spec.bias, -8, 8);
  fields.Optional("timeout_ms", spec.timeout);
  fields.Optional("labels", spec.labels);
  KVR_TRY_VOID(fields.Done());
  return spec;
}

TEST(Fields, ReadsAStructure) {
  const auto spec =
      ReadSpec(Parsed("{url: http://a, ranks: 4, spare: true, weight: 0.5, bias: -2, timeout_ms: "
                      "9, labels: [x, y]}"));
  ASSERT_TRUE(spec) << spec.error().message;
  EXPECT_EQ(spec->url, "http://a");
  EXPECT_EQ(spec->ranks, 4u);
  EXPECT_TRUE(spec->spare);
  EXPECT_EQ(spec->weight, 0.5);
  EXPECT_EQ(spec->bias, -2);
  EXPECT_EQ(spec->timeout, Millis{9});
  EXPECT_THAT(spec->labels, ElementsAre("x", "y"));
  const auto least = ReadSpec(Parsed("url: http://a"));
  ASSERT_TRUE(least);
  EXPECT_EQ(least->ranks, 1u);
  EXPECT_EQ(least->timeout, Millis{5});
}

TEST(Fields, ReportsTheFirstErrorWithItsPlace) {
  const auto error_of = [](std::string_view workers) {
    const Node root = Parsed("workers:\n" + std::string(workers));
    for (const Node& item : root.Find("workers")->items) {
      if (const auto spec = ReadSpec(item); !spec) return spec.error().message;
    }
    return std::string();
  };
  EXPECT_EQ(error_of("- url: a\n- ranks: 2\n"), "a.yaml:3: workers[1] lacks the key `url`");
  EXPECT_EQ(error_of("- url: a\n  ranks: 0\n"),
            "a.yaml:3: workers[0].ranks must be a whole number of 1 to 1024, got `0`");
  EXPECT_EQ(error_of("- url: a\n  rank: 2\n"),
            "a.yaml:3: unknown key `workers[0].rank`; did you mean `ranks`?");
  EXPECT_EQ(error_of("- ur1: a\n  ranks: 2\n"),
            "a.yaml:2: unknown key `workers[0].ur1`; did you mean `url`?")
      << "a required key that is misspelt is no absent one";
  EXPECT_EQ(error_of("- a\n"), "a.yaml:2: workers[0] must be a map of keys and values, got `a`");
  EXPECT_EQ(error_of("-\n"),
            "a.yaml:2: workers[0] has no value; give one, or remove the key to get the default");
  EXPECT_EQ(error_of("- url: a\n  weight: x\n  ranks: 0\n"),
            "a.yaml:4: workers[0].ranks must be a whole number of 1 to 1024, got `0`");
}

TEST(Fields, RawHandsOverTheNode) {
  const Node root = Parsed("inner: {a: 1}\nother: 2\n");
  Fields fields(root);
  const Node* inner = fields.Raw("inner");
  ASSERT_NE(inner, nullptr);
  EXPECT_EQ(inner->Find("a")->text, "1");
  EXPECT_EQ(fields.Raw("absent"), nullptr);
  EXPECT_THAT(fields.Done().error().message, HasSubstr("a.yaml:2: unknown key `other`"));
}

}  // namespace
}  // namespace kvr::config
