// GET /workers/{id}/rejected, of the indexer and of the gateway.
#pragma once

#include "fleet/catalog.h"
#include "net/http.h"

namespace kvr::service {

// {"instance_id":1,"ranks":[{"dp_rank":0,"total":3,"by_reason":{"decode_error":3},"last":[
//   {"reason":"decode_error","detail":"wrong_type","sequence":17,"index":0,"offset":21,
//    "payload_bytes":80,"received":1700000000.25,"bytes":"93..."}]}]}
//
// Oldest first. `sequence`, `index`, `offset` and `bytes` are absent where there is none. 404 for a
// worker that is not listed, 400 for an id that is no number.
net::HttpResponse RejectedPage(const fleet::Catalog& catalog, const net::HttpRequest& request);

}  // namespace kvr::service
