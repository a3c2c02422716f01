// Incremental HTTP/1.x parsing on top of Beast's grammar. For this module only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <boost/beast/http/basic_parser.hpp>

#include "net/body_budget.h"
#include "net/http.h"

namespace kvr::net {

using ParseError = boost::system::error_code;

// Ends a message whose body outgrew its limit.
ParseError BodyTooLarge();
// Ends a message whose head outgrew its limit.
ParseError HeadTooLarge();
// Ends a message for whose body the server has no memory to give.
ParseError NoRoomForBody();

// False for a message with a transfer coding other than chunked alone: two readers could see its
// body end in different places. `chunked` is what the parser made of it.
bool HasKnownCoding(const HttpHeaders& headers, bool chunked);

// What requests and responses share: the limit of the head, and the callbacks that say nothing to
// either, or only to the other.
template <bool kIsRequest>
class MessageParser : public boost::beast::http::basic_parser<kIsRequest> {
 public:
  // Of the body, once the head is there.
  [[nodiscard]] std::optional<std::uint64_t> declared_length() const;

 protected:
  using Verb = boost::beast::http::verb;
  using Field = boost::beast::http::field;
  using View = boost::beast::string_view;

  explicit MessageParser(std::size_t head_bytes_max);

  // Parses until the message is done, the head is complete or the bytes are used up; returns how
  // many were used.
  std::size_t PutAll(std::string_view bytes, ParseError& error);

  std::size_t on_body_impl(View body, ParseError& error) override = 0;

 private:
  void on_request_impl(Verb, View, View, int, ParseError&) override {}
  void on_response_impl(int, View, int, ParseError&) override {}
  void on_header_impl(ParseError&) override {}
  void on_body_init_impl(const boost::optional<std::uint64_t>&, ParseError&) override {}
  void on_chunk_header_impl(std::uint64_t, View, ParseError&) override {}
  std::size_t on_chunk_body_impl(std::uint64_t, View body, ParseError& error) override {
    return on_body_impl(body, error);
  }
  void on_finish_impl(ParseError&) override {}

  const std::size_t head_bytes_max_;
  std::size_t head_bytes_ = 0;
};

// Parses one request into an HttpRequest.
//
// Feed it contiguous bytes: Put consumes what it can. The body limit may be set once the head is
// there, because it depends on the route.
class RequestParser final : public MessageParser<true> {
 public:
  explicit RequestParser(std::size_t head_bytes_max);

  // Parses from `bytes` and returns how many were used. `error` is set when the message is bad. The
  // head is parsed by calls of its own: one that completes it uses no byte of the body.
  std::size_t Put(std::string_view bytes, ParseError& error);
  // `share` must outlive the parser; the memory of the body is taken from it.
  void LimitBody(std::size_t bytes_max, BodyShare& share) {
    body_bytes_max_ = bytes_max;
    share_ = &share;
  }
  [[nodiscard]] std::size_t body_limit_bytes() const { return body_bytes_max_; }

  [[nodiscard]] HttpRequest& request() { return request_; }
  [[nodiscard]] bool http11() const { return version_ >= 11; }

 private:
  void on_request_impl(Verb verb, View method, View target, int version,
                       ParseError& error) override;
  void on_field_impl(Field field, View name, View value, ParseError& error) override;
  void on_body_init_impl(const boost::optional<std::uint64_t>& length, ParseError& error) override;
  std::size_t on_body_impl(View body, ParseError& error) override;
  void on_chunk_header_impl(std::uint64_t size, View extensions, ParseError& error) override;

  // Room for `more` bytes of body. Memory grows with what has come and not with what was promised,
  // so that promises take nothing from the others.
  bool MakeRoom(std::size_t more);

  std::size_t body_bytes_max_ = 0;
  std::size_t body_bytes_expected_ = 0;
  BodyShare* share_ = nullptr;
  int version_ = 11;
  HttpRequest request_;
};

// Parses one response; the body comes out in the pieces in which it is fed.
class ResponseParser final : public MessageParser<false> {
 public:
  // `no_body`: the answer to a HEAD request.
  ResponseParser(std::size_t head_bytes_max, bool no_body);

  // As RequestParser::Put. Body bytes are appended to `piece`.
  std::size_t Put(std::string_view bytes, std::string& piece, ParseError& error);

  [[nodiscard]] int status() const { return status_; }
  [[nodiscard]] const HttpHeaders& headers() const { return headers_; }

 private:
  void on_response_impl(int code, View reason, int version, ParseError& error) override;
  void on_field_impl(Field field, View name, View value, ParseError& error) override;
  std::size_t on_body_impl(View body, ParseError& error) override;

  int status_ = 0;
  HttpHeaders headers_;
  std::string* piece_ = nullptr;
};

}  // namespace kvr::net
