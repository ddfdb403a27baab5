"""Tests of gRPC reflection: a client such as grpcurl needs only the address of the server."""

import unittest

import grpc
from google.protobuf import descriptor_pool, json_format, message_factory
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from serving import Server


class ReflectionTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server()
        cls.channel = grpc.insecure_channel(cls.server.grpc)

    @classmethod
    def tearDownClass(cls):
        cls.channel.close()
        cls.server.stop()

    def test_a_stranger_finds_the_service_and_generates(self):
        database = ProtoReflectionDescriptorDatabase(self.channel)
        self.assertIn("baton.v1.Inference", database.get_services())
        method = descriptor_pool.DescriptorPool(database).FindServiceByName("baton.v1.Inference").FindMethodByName("Generate")
        request, response = map(message_factory.GetMessageClass, (method.input_type, method.output_type))
        call = self.channel.unary_stream(f"/{method.containing_service.full_name}/{method.name}",
                                         request_serializer=request.SerializeToString,
                                         response_deserializer=response.FromString)
        asked = json_format.ParseDict({"segments": {"segments": [{"token_ids": {"ids": [2, 3, 4]}}]},
                                       "sampling": {"max_tokens": 5, "temperature": 0, "ignore_eos": True}}, request())
        answers = [json_format.MessageToDict(r, preserving_proto_field_name=True) for r in call(asked)]
        self.assertEqual(5, sum(len(part.get("token_ids", [])) for part in answers))
        self.assertEqual("FINISH_REASON_LENGTH", answers[-1]["final"]["finish_reason"])

    def test_reflection_hides_worker_services(self):
        services = ProtoReflectionDescriptorDatabase(self.channel).get_services()
        self.assertFalse([name for name in services if "Worker" in name or "KvTransfer" in name], services)


if __name__ == "__main__":
    unittest.main()
